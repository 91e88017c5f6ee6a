"""The outbox: messages that no broker takes wait in a folder and are sent in order once one does."""
