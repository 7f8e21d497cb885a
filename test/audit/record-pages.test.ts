import { describe, expect, it } from 'vitest'
import { openGateway } from '#audit/gateway.ts'
import { GatewayFault } from '#audit/gateway-http.ts'

const NOTARY = `0x${'aa'.repeat(20)}`

/** A gateway whose answers are too large with more than so many records. */
function gatewayOf(recordsMax: number) {
  const limits: number[] = []
  const gateway = openGateway({
    async fetchObject(where) {
      const limit = Number(/limit=(\d+)/.exec(where)?.[1])
      limits.push(limit)
      if (limit > recordsMax)
        throw new GatewayFault('answer_too_large', { where, message: 'expected fewer arrays' })
      return { notary: NOTARY, records: Array.from({ length: limit }, () => ({})), next: limit }
    },
  })
  return { gateway, limits }
}

describe('fetchRecords', () => {
  it('an audit asks for fewer records when a page of them is too large', async () => {
    const { gateway, limits } = gatewayOf(30)
    expect((await gateway.fetchRecords(NOTARY, 0)).records).toHaveLength(25)
    expect(limits).toEqual([100, 50, 25])
  })

  it('an audit gives up when a single record is too large', async () => {
    const { gateway, limits } = gatewayOf(0)
    await expect(gateway.fetchRecords(NOTARY, 0)).rejects.toMatchObject({
      code: 'answer_too_large',
    })
    expect(limits).toEqual([100, 50, 25, 12, 6, 3, 1])
  })
})
