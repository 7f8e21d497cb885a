import { z } from 'zod'
import { ERROR_RULES, ERROR_TYPES, type ErrorCode, VALIDATION_CODE } from './errors.ts'

const CODES = Object.keys(ERROR_RULES) as readonly ErrorCode[]

/** The error envelope (interface, part 7). */
export const errorReply = z.looseObject({
  response: z.literal('NOK'),
  error: z.strictObject({
    status_code: z.int(),
    code: z.enum(CODES),
    message: z.string(),
    type: z.enum(ERROR_TYPES),
    param: z.string().nullable(),
    provider_code: z.string().optional(),
  }),
})

/**
 * A request that fails validation (interface, part 7), and its first fault in the form that
 * OpenAI's clients read.
 */
export const validationFault = z.strictObject({
  detail: z
    .array(
      z.strictObject({
        loc: z.array(z.union([z.string(), z.int()])),
        msg: z.string(),
        type: z.string(),
      }),
    )
    .min(1),
  error: z.strictObject({
    message: z.string(),
    type: z.literal('invalid_request_error'),
    param: z.string().nullable(),
    code: z.literal(VALIDATION_CODE),
  }),
})
