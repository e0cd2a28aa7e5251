"""Python imports this at its start in every process of a mutated node."""

from chaos import mutations

mutations.install()
