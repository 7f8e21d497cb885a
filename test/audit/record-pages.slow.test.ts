import { expect, it } from 'vitest'
import { JSON_CONTAINERS_MAX } from '#attestation/json/parse-strict.ts'
import { openGateway } from '#audit/gateway.ts'
import { openGatewayHttp } from '#audit/gateway-http.ts'

it('an audit reads a log whose customer filled every request with as many arrays as are allowed', async () => {
  const notary = `0x${'aa'.repeat(20)}`
  const record = `{"request":[${'[],'.repeat(JSON_CONTAINERS_MAX - 2)}[]]}`
  const paths: string[] = []
  const http = openGatewayHttp({
    url: 'http://127.0.0.1',
    apiKey: null,
    signal: new AbortController().signal,
    sleep: async () => undefined,
    fetch: async (url) => {
      const { pathname, search, searchParams } = new URL(String(url))
      paths.push(pathname + search)
      const limit = Number(searchParams.get('limit'))
      const records = Array.from({ length: limit }, () => record).join(',')
      return new Response(`{"notary":"${notary}","records":[${records}],"next":${limit}}`)
    },
  })
  const { records } = await openGateway(http).fetchRecords(notary, 0)
  expect([records.length, paths.length]).toEqual([50, 2])
})
