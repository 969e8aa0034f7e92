"""Pay for a shopping cart with Stripe PaymentIntents."""
