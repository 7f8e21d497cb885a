import { describe, expect, it } from 'vitest'
import { type ConnectOptions, connect } from '#client/connect.ts'

const OPTIONS = {
  url: 'https://gateway.example',
  expect: { measurements: { PCR0: 'a0'.repeat(48) }, configurations: 'c0'.repeat(32) },
}

describe('connect', () => {
  it.each<[string, object]>([
    ['a listener that is not a function', { onProof: null }],
    ['a fetch that is not a function', { fetch: {} }],
    ['a signal that is not an AbortSignal', { signal: new AbortController() }],
    ['a time limit that no timer can measure', { timeoutMs: 2 ** 31 }],
    ['providers that are none', { providers: null }],
    ['providers without policies', { providers: {} }],
    ['providers with an unknown member', { providers: { policies: ['{}'], policy: '{}' } }],
    ['a chain without providers', { rpc: 'https://chain.example' }],
    ['a chain that is no URL', { providers: { policies: ['{}'] }, rpc: 'chain' }],
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
