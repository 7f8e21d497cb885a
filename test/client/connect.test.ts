import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { type ConnectOptions, connect } from '#client/connect.ts'

const OPTIONS = {
  url: 'https://gateway.example',
  policy: {
    enclaves: { measurements: { PCR0: 'a0'.repeat(48) }, configurations: 'c0'.repeat(32) },
  },
}

const PROVIDER = JSON.parse(readFileSync('docs/provider-policies/nitro.json', 'utf8')).providers

describe('connect', () => {
  it.each<[string, object]>([
    ['a listener that is not a function', { onProof: null }],
    ['a fetch that is not a function', { fetch: {} }],
    ['a signal that is not an AbortSignal', { signal: new AbortController() }],
    ['a time limit that no timer can measure', { timeoutMs: 2 ** 31 }],
    ['no policy', { policy: undefined }],
    ['a policy that is null', { policy: null }],
    ['a policy without enclaves', { policy: { providers: PROVIDER } }],
    ['a policy with an unknown member', { policy: { ...OPTIONS.policy, expect: {} } }],
    ['enclaves that are null', { policy: { enclaves: null } }],
    ['providers that are null', { policy: { ...OPTIONS.policy, providers: null } }],
    ['no providers', { policy: { ...OPTIONS.policy, providers: [] } }],
    ['too many providers', { policy: { ...OPTIONS.policy, providers: Array(65).fill(PROVIDER) } }],
    ['providers that are no policies', { policy: { ...OPTIONS.policy, providers: [{}] } }],
    ['an option that there is not', { expect: {} }],
    ['a chain without providers', { rpc: 'https://chain.example' }],
    [
      'a chain that is no URL',
      { policy: { ...OPTIONS.policy, providers: PROVIDER }, rpc: 'chain' },
    ],
  ])('connect refuses a wrong option: %s', async (_, more) => {
    const options = { ...OPTIONS, ...more } as ConnectOptions
    await expect(connect(options)).rejects.toMatchObject({ code: 'invalid_options' })
  })

  it('connect reads no more of a list of notaries than such a list can have', async () => {
    let given = 0
    const fetch = async () => {
      const pull = (body: ReadableStreamDefaultController) => {
        given += 65_536
        body.enqueue(new Uint8Array(65_536))
      }
      return new Response(new ReadableStream({ pull }))
    }
    await expect(connect({ ...OPTIONS, fetch })).rejects.toMatchObject({ code: 'invalid_reply' })
    expect(given).toBeLessThan(5_000_000)
  })
})
