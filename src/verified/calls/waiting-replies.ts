import { z } from 'zod'
import { address, hash32, unixSeconds } from '../../api/schemas.ts'

const count = z.int().min(0)

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
            'pending: in no block yet; mined: in a young block; taken: another transaction ' +
              'used its nonce, and the anchor will be made again',
          ),
        block_number: z.int().nullable(),
        created_at: unixSeconds,
        replaced: count.describe('How many earlier anchors the same head had'),
      }),
    )
    .describe('Oldest first'),
})
export type WaitingAnchorsReply = z.output<typeof waitingAnchors>

export const waitingStatus = z.strictObject({
  commits: z
    .strictObject({
      state: z.enum(['stopped', 'opening', 'following', 'failing', 'refusing']),
      fault: z.string().nullable(),
      failing_seconds: z.number(),
      waiting_calls: count,
    })
    .describe('Of the log in the worst state'),
  anchors: z.strictObject({
    state: z.enum(['stopped', 'idle', 'working', 'failing']),
    fault: z.string().nullable(),
    chain: z.enum(['ok', 'failing']),
    pending: count.describe('In no block, when the chain was last read'),
    unconfirmed: count,
    oldest_at: unixSeconds.nullable(),
  }),
})
export type WaitingStatusReply = z.output<typeof waitingStatus>
