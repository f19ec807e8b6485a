"""Forms: fields of a scenario beside what they ask (`ask`), and changes that are typed (`typed_form`)."""
