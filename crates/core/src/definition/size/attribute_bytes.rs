//! Counts the bytes that a value takes in an item, without building the item. DynamoDB's rule: the UTF-8 bytes of names
//! and texts, a byte for two digits of a number and one more, 3 bytes for a map or a list, and 1 for each of its values.
//! <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>

use std::fmt::{self, Display, Write};

use serde::{
    Serialize, Serializer,
    ser::{self, Impossible},
};

/// The bytes of a map or of a list, and of each of its values.
const CONTAINER_BYTES: usize = 3;
const ENTRY_BYTES: usize = 1;

/// The bytes of a value.
///
/// # Errors
/// A `Serialize` implementation failed.
pub(super) fn value_bytes(value: &impl Serialize) -> Result<usize, NotCounted> {
    value.serialize(AttributeBytes { container: CONTAINER_BYTES, entry: ENTRY_BYTES })
}

/// The bytes of the attributes of an item: DynamoDB does not count the outermost map.
///
/// # Errors
/// As [`value_bytes`].
pub(super) fn item_bytes(item: &impl Serialize) -> Result<usize, NotCounted> {
    item.serialize(AttributeBytes { container: 0, entry: 0 })
}

/// A value cannot be counted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NotCounted(String);

impl ser::Error for NotCounted {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// A serializer that counts.
struct AttributeBytes {
    container: usize,
    entry: usize,
}

/// The bytes of a list or of a map so far.
struct ContainerBytes {
    entry: usize,
    bytes: usize,
}

impl AttributeBytes {
    fn container(&self) -> ContainerBytes {
        ContainerBytes { entry: self.entry, bytes: self.container }
    }
}

impl ContainerBytes {
    fn add_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotCounted> {
        self.bytes += self.entry + value_bytes(&value)?;
        Ok(())
    }

    fn add_field<T: Serialize + ?Sized>(
        &mut self,
        name: &str,
        value: &T,
    ) -> Result<(), NotCounted> {
        self.bytes += name.len();
        self.add_value(value)
    }
}

/// The bytes of a number, by its digits and its sign.
fn number_bytes(number: impl Display) -> Result<usize, NotCounted> {
    Ok(text_bytes(&number)?.div_ceil(2) + 1)
}

/// The bytes of a text that is not in memory.
fn text_bytes(text: &(impl Display + ?Sized)) -> Result<usize, NotCounted> {
    struct Length(usize);
    impl Write for Length {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 += part.len();
            Ok(())
        }
    }
    let mut length = Length(0);
    write!(length, "{text}").map_err(<NotCounted as ser::Error>::custom)?;
    Ok(length.0)
}

macro_rules! numbers {
    ($($method:ident: $type:ty),+) => {
        $(fn $method(self, number: $type) -> Result<usize, NotCounted> {
            number_bytes(number)
        })+
    };
}

impl Serializer for AttributeBytes {
    type Ok = usize;
    type Error = NotCounted;
    type SerializeSeq = ContainerBytes;
    type SerializeTuple = Impossible<usize, NotCounted>;
    type SerializeTupleStruct = Impossible<usize, NotCounted>;
    type SerializeTupleVariant = Impossible<usize, NotCounted>;
    type SerializeMap = ContainerBytes;
    type SerializeStruct = ContainerBytes;
    type SerializeStructVariant = Impossible<usize, NotCounted>;

    numbers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_f32: f32, serialize_f64: f64
    }

    fn serialize_bool(self, _: bool) -> Result<usize, NotCounted> {
        Ok(1)
    }

    fn serialize_char(self, character: char) -> Result<usize, NotCounted> {
        Ok(character.len_utf8())
    }

    fn serialize_str(self, text: &str) -> Result<usize, NotCounted> {
        Ok(text.len())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<usize, NotCounted> {
        Ok(bytes.len())
    }

    fn serialize_none(self) -> Result<usize, NotCounted> {
        Ok(1)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<usize, NotCounted> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<usize, NotCounted> {
        Ok(1)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<usize, NotCounted> {
        Ok(1)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<usize, NotCounted> {
        Ok(variant.len())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<usize, NotCounted> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<usize, NotCounted> {
        let mut map = self.container();
        map.add_field(variant, value)?;
        Ok(map.bytes)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<ContainerBytes, NotCounted> {
        Ok(self.container())
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, NotCounted> {
        Err(not_stored("a tuple"))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, NotCounted> {
        Err(not_stored(name))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, NotCounted> {
        Err(not_stored(variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<ContainerBytes, NotCounted> {
        Ok(self.container())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<ContainerBytes, NotCounted> {
        Ok(self.container())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, NotCounted> {
        Err(not_stored(variant))
    }

    fn collect_str<T: Display + ?Sized>(self, text: &T) -> Result<usize, NotCounted> {
        text_bytes(text)
    }
}

/// Items contain no tuples, and no variants with several values.
fn not_stored(name: &str) -> NotCounted {
    NotCounted(format!("{name} is not part of an item"))
}

impl ser::SerializeSeq for ContainerBytes {
    type Ok = usize;
    type Error = NotCounted;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotCounted> {
        self.add_value(value)
    }

    fn end(self) -> Result<usize, NotCounted> {
        Ok(self.bytes)
    }
}

impl ser::SerializeMap for ContainerBytes {
    type Ok = usize;
    type Error = NotCounted;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), NotCounted> {
        self.bytes += value_bytes(&key)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotCounted> {
        self.add_value(value)
    }

    fn end(self) -> Result<usize, NotCounted> {
        Ok(self.bytes)
    }
}

impl ser::SerializeStruct for ContainerBytes {
    type Ok = usize;
    type Error = NotCounted;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), NotCounted> {
        self.add_field(name, value)
    }

    fn end(self) -> Result<usize, NotCounted> {
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_size_counts_names_values_and_containers() {
        let item = json!({ "id": "ü", "list": ["ab", true, -12], "map": { "f": 123, "n": null } });
        // id: 2 + 2. list: 4 + 3 + (1 + 2) + (1 + 1) + (1 + 3). map: 3 + 3 + (1 + 1 + 3) + (1 + 1 + 1).
        let attributes = 4 + 16 + 14;
        assert_eq!(item_bytes(&item).unwrap(), attributes);
        assert_eq!(value_bytes(&item).unwrap(), 3 + 3 + attributes);
    }
}
