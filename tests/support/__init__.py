"""What several rooms' tests share."""
