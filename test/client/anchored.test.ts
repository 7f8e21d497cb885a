import { describe, expect, it } from 'vitest'
import { type AnchoredOptions, awaitAnchor } from '../../client/anchored.ts'

const never = async (): Promise<never> => {
  throw new Error('expected no question')
}

describe('waiting for an anchor', () => {
  it.each<[string, unknown]>([
    ['a name that is misspelt', { confirmation: 64 }],
    ['no confirmation', { confirmations: 0 }],
    ['a number as text', { confirmations: '64' }],
    ['nothing for a number', { confirmations: null }],
    ['a time that is no number', { timeoutMs: Number.NaN }],
    ['a malformed endpoint', ''],
    ['an endpoint that was not found', { rpc: null }],
    ['members that are not its own', Object.create({ rpc: 'https://chain.example' })],
    ['no object', null],
  ])('waiting for an anchor is refused with %s', async (_, options) => {
    const gateway = { url: 'https://gateway.example', apiKey: null, fetch: never, timeoutMs: 1_000 }
    const waiting = awaitAnchor({ hash: '00'.repeat(32) } as never, {
      gateway,
      policy: () => ({}),
      options: options as AnchoredOptions,
    })
    await expect(waiting).rejects.toMatchObject({ code: 'invalid_options' })
  })
})
