import { z } from 'zod'
import { ERROR_RULES, type ErrorCode } from '../../errors.ts'

const CODES = Object.keys(ERROR_RULES) as readonly ErrorCode[]

/** The error envelope (interface, part 7). */
export const errorReply = z.looseObject({
  response: z.literal('NOK'),
  error: z.strictObject({
    status_code: z.int(),
    code: z.enum(CODES),
    message: z.string(),
    provider_code: z.string().optional(),
  }),
})

/** A request that fails validation (interface, part 7). */
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
})
