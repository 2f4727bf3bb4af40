//! Parses a server's list of loaded models, which is the answer to `GET /api/ps`.

use serde_json::Value;

/// A model that the server has loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedModel {
    /// Name with tag, such as `llama3.2:latest`.
    pub name: String,
    /// Size of the loaded model in bytes.
    pub size: u64,
    /// Number of bytes of the model in GPU memory.
    pub on_gpu: u64,
}

impl LoadedModel {
    /// Returns whether the whole model is in the CPU's memory.
    pub fn on_cpu(&self) -> bool {
        self.on_gpu == 0 && self.size > 0
    }

    /// Describes the model and its share on the GPU.
    pub fn shown(&self) -> String {
        format!(
            "{} with {} % on the GPU",
            self.name,
            u128::from(self.on_gpu) * 100 / u128::from(self.size.max(1))
        )
    }

    /// Returns whether `name`, which may lack the tag, names this model.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.strip_suffix(":latest") == Some(name)
    }
}

/// Parses the models of an answer. Returns `None` if the answer is not a list of models.
pub fn parse(body: &str) -> Option<Vec<LoadedModel>> {
    let answer: Value = serde_json::from_str(body).ok()?;
    let list = match &answer["models"] {
        Value::Null => return answer.is_object().then(Vec::new),
        list => list.as_array()?,
    };
    let model = |model: &Value| LoadedModel {
        name: model["name"].as_str().unwrap_or_default().to_owned(),
        size: model["size"].as_u64().unwrap_or_default(),
        on_gpu: model["size_vram"].as_u64().unwrap_or_default(),
    };
    Some(list.iter().map(model).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn models_and_their_places() {
        let text = r#"{"models":[{"name":"m:latest","size":200,"size_vram":150},{"name":"n:1b","size":5}]}"#;
        let models = parse(text).unwrap();
        assert_eq!(models[0].shown(), "m:latest with 75 % on the GPU");
        assert_eq!((models[0].on_cpu(), models[1].on_cpu()), (false, true));
        assert!(models[0].is_called("m") && models[0].is_called("m:latest") && !models[1].is_called("n"));
        assert_eq!((parse("{}"), parse("[]"), parse("<html>")), (Some(Vec::new()), None, None));
    }

    proptest! {
        #[test]
        fn no_answer_breaks_the_reader(text in ".{0,80}", list in "[{}\\[\\]\":,a-z0-9]{0,60}") {
            let _ = (parse(&text), parse(&format!("{{\"models\":{list}}}")));
        }
    }
}
