import { z } from 'zod'
import { RpcError, type RpcReply, readQuantity } from '#client/rpc.ts'

// Forms of the Ethereum JSON-RPC specification ("quantity" and "data").

/** A number from 0 to 2^53-1. */
export const Quantity = z.string().transform((text, context) => {
  const number = readQuantity(text)
  if (number !== null) return number
  context.addIssue({ code: 'custom', message: 'expected a number in hex' })
  return z.NEVER
})

/** A number of up to 256 bits, as text. */
export const BigQuantity = z.string().regex(/^0x[0-9a-fA-F]{1,64}$/)

/** Bytes in hex with 0x. The text is kept unchanged. */
export const HexBytes = z.string().regex(/^0x(?:[0-9a-fA-F]{2})*$/)

/** 32 bytes: 0x, lower case. */
export const Hash = lowerCase(/^0x[0-9a-fA-F]{64}$/)

/** 20 bytes: 0x, lower case. */
export const Address = lowerCase(/^0x[0-9a-fA-F]{40}$/)

function lowerCase(form: RegExp) {
  return z
    .string()
    .regex(form)
    .transform((text) => text.toLowerCase())
}

/** Throws RpcError: `refused`, or `bad_answer` with the name of the wrong member. */
export function readAs<T>(shape: z.ZodType<T>, reply: RpcReply | undefined): T {
  if (reply?.kind === 'error') throw new RpcError('refused', reply.message)
  return readValue(shape, reply?.value)
}

/** Throws RpcError `bad_answer`, with the name of the wrong member. */
export function readValue<T>(shape: z.ZodType<T>, value: unknown): T {
  const parsed = shape.safeParse(value)
  if (parsed.success) return parsed.data
  const what = parsed.error.issues[0]
  throw new RpcError(
    'bad_answer',
    `unexpected value at ${what?.path.join('.') || 'result'}: ${what?.message}`,
  )
}
