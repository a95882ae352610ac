"""What this agent does beside calling the service: so far, nothing."""


def body_of(request):
    """The body of the call, from a request of Steward: `step`, `action`, `body`, … It must not fail, and not wait."""
    return request.get("body")
