//! The names of the fields of a struct, as serde reads and writes them. A list by hand could miss a new field.

use serde::{
    Deserializer,
    de::{DeserializeOwned, Error as _, Visitor, value::Error},
    forward_to_deserialize_any,
};

/// The names of the fields of `T` in the order of their declaration. Empty if `T` is not a struct.
pub(crate) fn field_names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names: &[&str] = &[];
    // This always fails, because there is no value to read.
    let _ = T::deserialize(FieldNames(&mut names));
    names
}

/// A deserializer without a value. It records the names of the fields that it is asked for.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is no value"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_stored_format() {
        #[derive(serde::Deserialize)]
        struct Item {
            #[serde(rename = "i")]
            _id: Option<u32>,
            _due: u64,
        }
        assert_eq!(field_names::<Item>(), ["i", "_due"]);
        assert!(field_names::<u32>().is_empty());
    }
}
