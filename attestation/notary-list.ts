/**
 * Notaries that a gateway names at most in `GET /v1/notaries`, and that a client takes. More
 * enclaves behind one gateway are found as they answer.
 */
export const NOTARIES_MAX = 64
