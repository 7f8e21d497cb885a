/** Close codes (RFC 6455 section 7.4.1 and its IANA registry) that the gateway sends. */
export const CLOSE_CODES = {
  protocol: 1002,
  notText: 1003,
  policy: 1008,
  fault: 1011,
  restart: 1012,
  later: 1013,
} as const
