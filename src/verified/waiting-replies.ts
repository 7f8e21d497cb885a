import { z } from 'zod'
import { address, hash32, unixSeconds } from '../api/schemas.ts'

const count = z.int().min(0)

/** `GET /v1/admin/anchors`. */
export const waitingAnchors = z.strictObject({
  anchors: z
    .array(
      z.strictObject({
        relayer: address,
        nonce: count,
        tx_hash: hash32,
        notary: address,
        size: count,
        state: z
          .enum(['pending', 'mined', 'taken'])
          .describe(
            'In no block yet; in one that is young; its nonce was used by another transaction, and it is to be made again',
          ),
        block_number: z.int().nullable(),
        created_at: unixSeconds,
        replaced: count.describe('How many anchors of the same head were before it'),
      }),
    )
    .describe('Oldest first'),
})
export type WaitingAnchorsReply = z.output<typeof waitingAnchors>

/** `GET /v1/admin/status`. */
export const waitingStatus = z.strictObject({
  commits: z
    .strictObject({
      state: z.enum(['stopped', 'opening', 'following', 'failing', 'refusing']),
      fault: z.string().nullable(),
      failing_seconds: z.number(),
      waiting_calls: count,
    })
    .describe('Of the log that is worst off'),
  anchors: z.strictObject({
    state: z.enum(['stopped', 'idle', 'working', 'failing']),
    fault: z.string().nullable(),
    chain: z.enum(['ok', 'failing']),
    waiting: count.describe('In no block, as of the last look at the chain'),
    unconfirmed: count,
    oldest_at: unixSeconds.nullable(),
  }),
})
export type WaitingStatusReply = z.output<typeof waitingStatus>
