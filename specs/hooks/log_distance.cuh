// An example of a hook (attention.hook): the score falls by the logarithm of the distance between query and token. A
// hook is an expression for the new score, over the names score (as exp takes it, with scale, softcap and slopes),
// token, position (of the query), query, head (of all query heads), length and sequence.
// SPDX-License-Identifier: MIT
score - 0.25f * log1pf(fabsf(float(position - token)))
