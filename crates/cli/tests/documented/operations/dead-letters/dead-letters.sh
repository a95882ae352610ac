# Sends two messages that no handler can read to the dead-letter queue of the scheduler.
queue=http://127.0.0.1:14566/000000000000/steward-scheduler-dead-letters
trace='{"traceparent":{"DataType":"String","StringValue":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}'
for body in 'not JSON' '{\"type\":\"wake\",\"task_id\":\"order-1\",\"because\":\"none\"}'; do
    curl --silent --fail --output /dev/null "$AWS_ENDPOINT_URL" \
        --header 'content-type: application/x-amz-json-1.0' --header 'x-amz-target: AmazonSQS.SendMessage' \
        --data "{\"QueueUrl\":\"$queue\",\"MessageBody\":\"$body\",\"MessageAttributes\":$trace}"
done
