"""The outbox: messages that no broker accepts wait in a folder and are sent in order when one does."""
