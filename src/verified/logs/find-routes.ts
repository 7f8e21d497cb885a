import { z } from 'zod'
import { createAdmission } from '../../api/admission.ts'
import { defineRoute, type Route } from '../../api/route.ts'
import { described, faultIssue } from '../../api/schemas.ts'
import type { Finder, Sought } from './finder.ts'
import { foundThings } from './log-replies.ts'

/** Further searches are refused with 503. Reads of logs have a separate limit. */
const FINDS_MAX = 16

const EXPECTED =
  'a hash (64 hex digits), a notary (0x and 40 hex digits), or the number of a block (at most 15 digits)'

const soughtText = described(z.string(), () => ({
  type: 'string',
  pattern: String.raw`^\s*((0x)?([0-9a-fA-F]{64}|[0-9a-fA-F]{40})|\d{1,15})\s*$`,
  description: `What to look for: ${EXPECTED}`,
})).transform((text, { issues }): Sought => {
  const [, hex, number] =
    /^\s*(?:(?:0x)?([0-9a-f]{64}|[0-9a-f]{40})|(\d{1,15}))\s*$/i.exec(text) ?? []
  if (number !== undefined) return { kind: 'block', number: Number(number) }
  if (hex?.length === 64) return { kind: 'hash', hash: hex.toLowerCase() }
  if (hex?.length === 40) return { kind: 'notary', address: hex.toLowerCase() }
  issues.push(faultIssue([], 'string_pattern_mismatch', `Input should be ${EXPECTED}`))
  return z.NEVER
})

export function findRoutes(finder: Finder): readonly Route[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/v1/find',
      tag: 'Logs',
      scope: 'public',
      summary: 'Find a completion, a log or an anchor',
      description:
        'By the hash of a completion, of a transaction or of a block of the chain, by a ' +
        'notary, or by the number of a block. ' +
        'What is not found has empty members: nothing here is a 404.',
      query: z.object({ q: soughtText }),
      reply: { name: 'Found', schema: foundThings },
      errors: ['not_ready', 'overloaded'],
      admission: createAdmission({ callsMax: FINDS_MAX, bytesMax: 0 }),
      handler: ({ query }) => finder.find(query.q),
    }),
  ]
}
