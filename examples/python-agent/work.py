"""What this agent does beside calling the service: it completes the body with a greeting."""

GREETINGS = {"en": "Hello", "fr": "Bonjour", "de": "Guten Tag"}


def body_of(request):
    """The body of the call, from a request of Steward: `step`, `action`, `body`, … It must not fail, and not wait."""
    person = request.get("body")
    person = {} if person is None else person
    if not isinstance(person, dict):
        return person
    text = f"{GREETINGS.get(str(person.get('language')), 'Hello')}, {person.get('name', 'stranger')}!"
    return person | {"text": text}
