//! The console behind its function URL: only signed requests are accepted, there are two permissions, and `steward console`
//! signs requests for a browser.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    rc::Rc,
};

use reqwest::{Client, Response, redirect::Policy};
use steward_core::model::command::CommandSource;
use steward_demo::{example_workflow::ExampleWorkflow, services::Fault};

use super::{
    aws_requests::{wait_for, with_retries},
    http::base_url,
    stack::Stack,
    target::{TargetKind, deployment_target},
};

pub(super) async fn operator_uses_the_console(stack: Rc<Stack>) {
    let url = base_url(&stack, "STEWARD_CONSOLE_URL");
    if deployment_target().enforces_iam("console: an unsigned request") {
        assert_eq!(reqwest::get(format!("{url}console")).await.unwrap().status(), 403, "unsigned");
    }
    let console = ConsoleProxy::start(&url);

    let overview = console.get("").await;
    assert_eq!(overview.status(), 200);
    assert!(overview.headers().contains_key("content-security-policy"));
    let overview = overview.text().await.unwrap();
    assert!(
        overview.contains(&deployment_target().caller) && !overview.contains("read-only access"),
        "{overview}"
    );

    let id = stack.order_with("console", "reserve", |fault| fault == Fault::Healthy);
    let order = ExampleWorkflow::Order.scenario();
    stack.submit(&id, order.name(), &order.input(2)).await;
    let listed = async || {
        let list = console.get("/tasks?state=Processed").await;
        (list.status() == 200 && list.text().await.unwrap().contains(&id)).then_some(())
    };
    wait_for("a task in the console's list", listed).await;
    let task = console.get(&format!("/tasks/{id}")).await.text().await.unwrap();
    assert!(task.contains("Processed") && task.contains("reserve"), "{task}");
    for page in ["/workflows", "/workflows/order", "/dead-letters"] {
        assert_eq!(console.get(page).await.status(), 200, "{page}");
    }

    let undone = format!("/tasks/{id}/undo");
    let foreign = console.post(&undone, "cross-site").await;
    assert_eq!(foreign.status(), 403, "another site's form");
    assert_eq!(console.post(&undone, "same-origin").await.status(), 303);
    let on_record = async || stack.task(&id).await?.commands.into_iter().next();
    let command = wait_for("a command from the console", on_record).await;
    assert_eq!(
        (command.by.as_str(), command.why.as_str()),
        (deployment_target().caller.as_str(), "an end-to-end test")
    );
    // The emulators state the account's id for every sender, so that the scheduler cannot recognise the console.
    let via = match deployment_target().kind {
        TargetKind::Aws => CommandSource::Console,
        TargetKind::MiniStack | TargetKind::LocalStack => CommandSource::Direct,
    };
    assert_eq!(command.caller.via, via);
}

/// A running `steward console --url`, which signs as the account's root.
struct ConsoleProxy {
    child: Child,
    address: String,
    client: Client,
}

impl ConsoleProxy {
    fn start(url: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        let program = program.parent().unwrap().with_file_name("steward");
        let mut child = Command::new(program)
            .args(["console", "--listen", "127.0.0.1:0", "--url", url])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("console ").unwrap().to_owned();
        let client = Client::builder().redirect(Policy::none()).build().unwrap();
        Self { child, address, client }
    }

    async fn get(&self, page: &str) -> Response {
        let url = format!("{}{page}", self.address);
        with_retries(page, async || self.client.get(&url).send().await.unwrap()).await
    }

    /// Posts a form with the header that a browser sends.
    async fn post(&self, page: &str, site: &str) -> Response {
        let request = self.client.post(format!("{}{page}", self.address));
        let request = request.header("sec-fetch-site", site);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body("reason=an+end-to-end+test").send().await.unwrap()
    }
}

impl Drop for ConsoleProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
