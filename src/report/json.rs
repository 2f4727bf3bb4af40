//! Formats the report for programs as one object, which `docs/check.schema.json` describes. Keys may be added
//! in later versions and are never removed.

use std::collections::BTreeMap;

use serde::Serialize;
use vgpu_findings::json::{self, Check, FirstFailure};

use super::CheckReport;
use crate::check::facts::ResolvedLibrary;
use crate::diagnosis::Finding;

/// Schema name in the object that `--json` prints.
const SCHEMA: &str = "vgpu-run.check/1";

#[derive(Serialize)]
struct JsonReport<'a> {
    schema: &'static str,
    verdict: &'static str,
    headline: String,
    first_failure: Option<FirstFailure>,
    issues: Vec<String>,
    incomplete: &'a [String],
    unanswered: &'a [String],
    checks: Vec<Check<'a>>,
    libraries: &'a [ResolvedLibrary],
    versions: &'a BTreeMap<&'static str, String>,
}

/// Returns the report as a JSON object in one line.
pub fn object(report: &CheckReport) -> String {
    let object = JsonReport {
        schema: SCHEMA,
        verdict: json::verdict(report.verdict()),
        headline: json::headline(report.headline(), &report.findings),
        first_failure: FirstFailure::first(&report.findings),
        issues: report.findings.iter().filter_map(Finding::issue).collect(),
        incomplete: &report.incomplete,
        unanswered: &report.unanswered,
        checks: report.findings.iter().map(Check::from_finding).collect(),
        libraries: &report.libraries,
        versions: &report.versions,
    };
    // Texts and numbers: there is nothing in it that cannot be written.
    serde_json::to_string(&object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::samples;
    use super::*;
    use crate::diagnosis::catalogue;

    /// Lists violations of `schema` by `value`, for the part of JSON Schema that this project uses.
    fn wrong(schema: &Value, root: &Value, value: &Value, place: &str) -> Vec<String> {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.strip_prefix("#/$defs/").expect("a reference into $defs");
            return wrong(&root["$defs"][name], root, value, place);
        }
        let mut found = Vec::new();
        let mut say = |what: String| found.push(format!("{place}: {what}"));
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_u64() || number.is_i64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !kinds.is_empty() && !kinds.contains(&kind) {
            say(format!("is a {kind}, not {kinds:?}"));
        }
        if !schema["const"].is_null() && schema["const"] != *value {
            say(format!("is {value}"));
        }
        if let Some(values) = schema["enum"].as_array()
            && !values.contains(value)
        {
            say(format!("is {value}, none of {values:?}"));
        }
        if let (Some(least), Some(number)) = (schema["minimum"].as_i64(), value.as_i64())
            && number < least
        {
            say(format!("is {number}"));
        }
        if let Some(object) = value.as_object() {
            for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !object.contains_key(key) {
                    say(format!("has no {key}"));
                }
            }
            for (key, value) in object {
                let inner = match (&schema["properties"][key], &schema["additionalProperties"]) {
                    (Value::Null, Value::Bool(false)) => {
                        found.push(format!("{place}: has {key}"));
                        continue;
                    }
                    (Value::Null, other) => other,
                    (property, _) => property,
                };
                if inner.is_object() {
                    found.extend(wrong(inner, root, value, &format!("{place}.{key}")));
                }
            }
        }
        if let (Some(items), true) = (value.as_array(), schema["items"].is_object()) {
            for (index, item) in items.iter().enumerate() {
                found.extend(wrong(&schema["items"], root, item, &format!("{place}[{index}]")));
            }
        }
        found
    }

    fn schema() -> Value {
        serde_json::from_str(include_str!("../../docs/check.schema.json")).expect("the schema is JSON")
    }

    fn judged(report: &CheckReport) -> Value {
        let value: Value = serde_json::from_str(&object(report)).expect("the object is JSON");
        let schema = schema();
        let wrong = wrong(&schema, &schema, &value, "check");
        assert!(wrong.is_empty(), "{wrong:#?}");
        value
    }

    #[test]
    fn every_report_keeps_the_schema() {
        for finding in samples::failures() {
            let issue = finding.issue().unwrap();
            let value = judged(&samples::report(&finding));
            assert_eq!(value["verdict"], "broken");
            let first = &value["first_failure"];
            let named = format!("{}/{}", first["link"].as_str().unwrap(), first["cause"].as_str().unwrap());
            assert_eq!(named, issue);
            assert_eq!(value["issues"][0], issue.as_str());
        }
        let healthy = judged(&samples::healthy());
        assert!(
            healthy["verdict"] == "works"
                && healthy["first_failure"].is_null()
                && healthy["issues"] == Value::Array(vec![])
        );
        assert_eq!(judged(&samples::incomplete())["verdict"], "incomplete");
        assert_eq!(judged(&samples::warnings())["verdict"], "works");
    }

    #[test]
    fn the_schema_refuses_what_is_wrong() {
        let schema = schema();
        let good: Value = serde_json::from_str(&object(&samples::healthy())).unwrap();
        for change in [
            |value: &mut Value| value["verdict"] = "fine".into(),
            |value: &mut Value| value["schema"] = "vgpu-run.check/2".into(),
            |value: &mut Value| value["checks"][0]["status"] = "good".into(),
            |value: &mut Value| value["checks"][0]["elapsed_us"] = (-1).into(),
            |value: &mut Value| value["checks"][0]["found"] = Value::Null,
            |value: &mut Value| value["headline"] = 3.into(),
            |value: &mut Value| drop(value.as_object_mut().unwrap().remove("issues")),
            |value: &mut Value| value["libraries"] = serde_json::json!([{"soname": "x"}]),
        ] {
            let mut value = good.clone();
            change(&mut value);
            assert!(!wrong(&schema, &schema, &value, "check").is_empty(), "{value}");
        }
    }

    #[test]
    fn the_schema_knows_every_link() {
        let schema = schema();
        let known: Vec<&str> =
            schema["$defs"]["link"]["enum"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let links: Vec<&str> = catalogue::LINKS.iter().map(|link| link.id.as_str()).collect();
        assert_eq!(known, links);
    }
}
