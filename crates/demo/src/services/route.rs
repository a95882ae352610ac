//! The route of a package from pickup to dropoff.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::responses::{ErrorResponse, bad_request};

/// The range of a drone. A third-party carrier is needed for longer routes.
const DRONE_RANGE_KM: f64 = 20.0;

const EARTH_RADIUS_KM: f64 = 6371.0;

/// The route of a package.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Route {
    pickup: Coordinates,
    dropoff: Coordinates,
}

/// Coordinates in degrees.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Coordinates {
    lat: f64,
    lon: f64,
}

impl Route {
    /// Parses the route in a request.
    ///
    /// # Errors
    /// The request has no valid route. The error is the response.
    pub(super) fn parse(request: &Map<String, Value>) -> Result<Self, ErrorResponse> {
        let route: Option<Self> = Self::deserialize(Value::Object(request.clone())).ok();
        let route = route.filter(|route| route.pickup.is_valid() && route.dropoff.is_valid());
        route.ok_or(bad_request(
            "no-route",
            "pickup and dropoff must be coordinates with lat and lon",
        ))
    }

    /// Whether the route is too long for a drone.
    pub(super) fn needs_third_party(self) -> bool {
        self.distance_km() > DRONE_RANGE_KM
    }

    /// The great-circle distance, by the haversine formula.
    pub(super) fn distance_km(self) -> f64 {
        let Self { pickup, dropoff } = self;
        let half = |from: f64, to: f64| ((to - from).to_radians() / 2.0).sin().powi(2);
        let across = pickup.lat.to_radians().cos() * dropoff.lat.to_radians().cos();
        let chord = half(pickup.lat, dropoff.lat) + across * half(pickup.lon, dropoff.lon);
        // Between antipodes, rounding errors may yield a value over 1, for which the arc sine is undefined.
        2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin()
    }
}

impl Coordinates {
    fn is_valid(self) -> bool {
        self.lat.abs() <= 90.0 && self.lon.abs() <= 180.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_over_twenty_kilometres_need_a_third_party() {
        let (delft, rotterdam) =
            (Coordinates { lat: 52.01, lon: 4.36 }, Coordinates { lat: 51.92, lon: 4.48 });
        let genoa = Coordinates { lat: 44.41, lon: 8.93 };
        let near = Route { pickup: delft, dropoff: rotterdam };
        assert_eq!((near.distance_km().round(), near.needs_third_party()), (13.0, false));
        let far = Route { pickup: delft, dropoff: genoa };
        assert_eq!((far.distance_km().round(), far.needs_third_party()), (910.0, true));
        let antipodes = Coordinates { lat: -delft.lat, lon: delft.lon - 180.0 };
        assert!(Route { pickup: delft, dropoff: antipodes }.needs_third_party());
    }
}
