//! From where a package is picked up to where it is dropped off.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::answer::{Problem, bad};

/// How far a drone flies; beyond, somebody else has to carry the package.
const DRONE_RANGE_KM: f64 = 20.0;

const EARTH_RADIUS_KM: f64 = 6371.0;

/// A way from one place to another.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Route {
    pickup: Place,
    dropoff: Place,
}

/// A place on earth, in degrees.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Place {
    lat: f64,
    lon: f64,
}

impl Route {
    /// The route that a request names; the error is the answer to one that names none.
    pub(super) fn of(request: &Map<String, Value>) -> Result<Self, Problem> {
        let route: Option<Self> = Self::deserialize(Value::Object(request.clone())).ok();
        let route = route.filter(|route| route.pickup.is_on_earth() && route.dropoff.is_on_earth());
        route.ok_or(bad("no-route", "pickup and dropoff are not places with lat and lon"))
    }

    /// Whether it is too far for a drone.
    pub(super) fn needs_third_party(self) -> bool {
        self.distance_km() > DRONE_RANGE_KM
    }

    /// As the drone flies: the haversine formula.
    pub(super) fn distance_km(self) -> f64 {
        let Self { pickup, dropoff } = self;
        let half = |from: f64, to: f64| ((to - from).to_radians() / 2.0).sin().powi(2);
        let across = pickup.lat.to_radians().cos() * dropoff.lat.to_radians().cos();
        let chord = half(pickup.lat, dropoff.lat) + across * half(pickup.lon, dropoff.lon);
        // Between antipodes, rounding may take it past 1, where there is no arc sine.
        2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin()
    }
}

impl Place {
    fn is_on_earth(self) -> bool {
        self.lat.abs() <= 90.0 && self.lon.abs() <= 180.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drone_flies_twenty_kilometres() {
        let (delft, rotterdam) = (Place { lat: 52.01, lon: 4.36 }, Place { lat: 51.92, lon: 4.48 });
        let genoa = Place { lat: 44.41, lon: 8.93 };
        let near = Route { pickup: delft, dropoff: rotterdam };
        assert_eq!((near.distance_km().round(), near.needs_third_party()), (13.0, false));
        let far = Route { pickup: delft, dropoff: genoa };
        assert_eq!((far.distance_km().round(), far.needs_third_party()), (910.0, true));
        let antipodes = Place { lat: -delft.lat, lon: delft.lon - 180.0 };
        assert!(Route { pickup: delft, dropoff: antipodes }.needs_third_party());
    }
}
