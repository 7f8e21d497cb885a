import { describe, expect, it } from 'vitest'
import { tellExchange } from '../../../attestation/report/tell-exchange.ts'

describe('tellExchange', () => {
  it('tellExchange names the parameters that the caller set, and no others', () => {
    const request = {
      model: 'm',
      messages: [{ role: 'user', content: 'Hi' }],
      temperature: 0,
      stream: false,
      top_p: null,
      affidavit: { nonce: 'ab'.repeat(16) },
    }
    expect(tellExchange({ request, response: null }).asked).toEqual([
      { who: 'model', text: 'm', left_out: 0 },
      { who: 'with', text: 'temperature, stream', left_out: 0 },
      { who: 'user', text: 'Hi', left_out: 0 },
    ])
    const unset = { model: 'm', messages: [], top_p: null }
    expect(tellExchange({ request: unset, response: null }).asked).toHaveLength(1)
  })
})
