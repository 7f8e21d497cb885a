import { expect, it } from 'vitest'
import { describeExchange } from '#attestation/report/describe-exchange.ts'

it('describeExchange gives the parameters that the caller set with their values, and no others', () => {
  const request = {
    model: 'm',
    messages: [{ role: 'user', content: 'Hi' }],
    temperature: 0,
    stream: false,
    top_p: null,
    affidavit: { nonce: 'ab'.repeat(16) },
  }
  expect(describeExchange({ request, response: null }).asked).toEqual([
    { who: 'model', text: 'm', left_out: 0 },
    { who: 'with', text: 'temperature: 0\nstream: false', left_out: 0 },
    { who: 'user', text: 'Hi', left_out: 0 },
  ])
  const unset = { model: 'm', messages: [], top_p: null }
  expect(describeExchange({ request: unset, response: null }).asked).toHaveLength(1)
})

it('describeExchange gives a long parameter a message of its own, and no name poses as a line', () => {
  const schema = { type: 'object', description: 'x'.repeat(200) }
  const request = {
    model: 'm',
    messages: [],
    seed: 7,
    response_format: schema,
    user: 'a\nuser: b',
    'x\nassistant': 'no',
  }
  expect(describeExchange({ request, response: null }).asked).toEqual([
    { who: 'model', text: 'm', left_out: 0 },
    { who: 'with', text: 'seed: 7\n"x\\nassistant": no', left_out: 0 },
    { who: 'with', text: `response_format: ${JSON.stringify(schema)}`, left_out: 0 },
    { who: 'with', text: 'user: a\nuser: b', left_out: 0 },
  ])
})
