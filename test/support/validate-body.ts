import type { z } from 'zod'
import { parseJsonBody, validate } from '#src/api/validation.ts'

/** Does with a body's bytes what a route does. Throws ValidationError with all faults. */
export function validateBody<Output>(schema: z.ZodType<Output>, body: Uint8Array): Output {
  return validate('body', schema, parseJsonBody(body))
}
