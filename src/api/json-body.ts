import type { z } from 'zod'
import { JsonError } from '../../attestation/json/json-error.ts'
import { parseStrictJson } from '../../attestation/json/parse-strict.ts'
import type { Json } from '../../attestation/json/value.ts'
import { ValidationError } from './errors.ts'
import { faultDetails, faultLocation } from './fault-details.ts'

/** What `schema` makes of a body's bytes. Throws ValidationError with all faults, also for what is not strict JSON. */
export function validateBody<Output>(schema: z.ZodType<Output>, body: Uint8Array): Output {
  const value = parseJsonBody(body)
  const { data, error } = schema.safeParse(value)
  if (error) throw new ValidationError(faultDetails('body', value, error.issues))
  return data
}

/** JSON value of a body's bytes. Throws ValidationError for an empty body and for JSON that does not mean one thing only. */
export function parseJsonBody(body: Uint8Array): Json {
  if (body.length === 0)
    throw new ValidationError([{ loc: ['body'], msg: 'Field required', type: 'missing' }])
  try {
    return parseStrictJson(body)
  } catch (error) {
    if (!(error instanceof JsonError)) throw error
    const isSyntax = error.code === 'syntax' || error.code === 'invalid_utf8'
    const loc = isSyntax ? ['body', error.offset] : faultLocation('body', error.path)
    const type = error.code === 'syntax' ? 'json_invalid' : error.code
    throw new ValidationError([{ loc, msg: error.message, type }])
  }
}
