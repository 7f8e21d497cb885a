import { NODE_ERRORS } from '../api/errors.ts'

/** Limits of each API: concurrent calls, and the bytes of all their bodies and answers. */
export const CHAT_LIMITS = { callsMax: 4_096, bytesMax: 512 * 1024 * 1024 } as const

/** Errors of a plain call that a contributed node answers. */
export const CHAT_CALL_ERRORS = [
  'rate_limit_exceeded',
  'insufficient_quota',
  'unsupported_model',
  ...NODE_ERRORS,
  'overloaded',
  'unsupported_request_parameter',
  'answer_too_large',
  'content_key_missing',
  'content_unreadable',
] as const
