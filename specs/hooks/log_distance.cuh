// A hook for attention.hook: the further a token stands from the query, the less it counts, by the logarithm of the
// distance. An example of what a hook may say; it is given score (as exp takes it: scale, softcap and slopes are in
// it), token, position (of the query), query, head (of all query heads), length and sequence, and is the new score.
// SPDX-License-Identifier: MIT
score - 0.25f * log1pf(fabsf(float(position - token)))
