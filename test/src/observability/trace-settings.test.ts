import { expect, it } from 'vitest'
import { z } from 'zod'
import { traceFields, tracesOf } from '#src/observability/trace-settings.ts'

const read = (variables: Readonly<Record<string, string>>) =>
  tracesOf(z.object(traceFields).parse(variables), 'a-service')
const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318/' }

it('settings of traces are none without a collector', () =>
  expect(read({ OTEL_SERVICE_NAME: 'x' })).toBeNull())

it('settings of traces are of every call, under the process’s own name, by default', () => {
  expect(read(ENDPOINT)).toEqual({
    url: 'http://127.0.0.1:4318/v1/traces',
    headers: {},
    serviceName: 'a-service',
    ratio: 1,
  })
})

it('settings of traces take headers in the form of W3C baggage', () => {
  const headers = { OTEL_EXPORTER_OTLP_HEADERS: 'Authorization=Basic%20eA==, x-tenant=a' }
  expect(read({ ...ENDPOINT, ...headers })?.headers).toEqual({
    authorization: 'Basic eA==',
    'x-tenant': 'a',
  })
})

it.each(['novalue', 'a=b,', 'a=%zz', 'a=%0d%0ainjected', 'b ad=x', '=x'])(
  'settings of traces refuse the headers %j',
  (list) => {
    expect(() => read({ ...ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS: list })).toThrow(
      'expected name=value',
    )
  },
)

it.each(['0', '1', '0.25', '.5', '1.0'])('settings of traces take the share %s', (share) => {
  expect(read({ ...ENDPOINT, OTEL_TRACES_SAMPLER_ARG: share })?.ratio).toBe(Number(share))
})

it.each(['-1', '1.1', 'all', '', '1e-3', 'NaN'])(
  'settings of traces refuse the share %j',
  (share) => {
    expect(() => read({ ...ENDPOINT, OTEL_TRACES_SAMPLER_ARG: share })).toThrow(
      'expected a number from 0 to 1',
    )
  },
)

it('settings of traces refuse what is no address of a collector, without repeating it', () => {
  const read4318 = () => read({ OTEL_EXPORTER_OTLP_ENDPOINT: 'collector-with-password:4318' })
  expect(read4318).toThrow('expected a URL')
  expect(read4318).not.toThrow('password')
})
