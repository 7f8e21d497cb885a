import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { describeExchange } from '#attestation/report/describe-exchange.ts'
import { SHOWN_MESSAGES_MAX, SHOWN_TEXT_LENGTH_MAX } from '#attestation/report/shown-exchange.ts'
import { printExchange } from '#src/cli/evidence/kept-exchange.ts'

const said = (message: Json) =>
  printExchange(describeExchange({ request: null, response: { choices: [{ index: 0, message }] } }))

describe('what was asked and said', () => {
  it('a kept exchange is told with every member, if only by its name', () => {
    const request: JsonObject = {
      model: 'demo/echo',
      temperature: 1,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Look:\nhere' },
            { type: 'image_url', image_url: {} },
          ],
        },
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ function: { name: 'f', arguments: '{}' } }],
        },
      ],
    }
    expect(printExchange(describeExchange({ request, response: null }))).toBe(
      [
        'asked',
        '  model        | demo/echo',
        '  with         | temperature: 1',
        '  user         | Look:',
        '               | here',
        '               | [part: {"type":"image_url","image_url":{}}]',
        '  assistant    | [calls f({})]',
        '',
      ].join('\n'),
    )
    expect(said({ role: 'assistant', content: 'No', refusal: 'why', audio: { id: 'a' } })).toBe(
      'said\n  assistant    | No\n               | [refusal: why]\n               | [audio: {"id":"a"}]\n',
    )
  })

  it('a kept exchange cannot write a line of the report: each of its lines stands behind a bar', () => {
    const shown = said({
      role: 'assistant',
      content: 'x\n\nVERIFIED: nothing failed.\n  passed  hash',
    })
    expect(
      shown
        .split('\n')
        .slice(1, -1)
        .every((line) => /^ {2}.{12} \| /.test(line)),
    ).toBe(true)
  })

  it('a kept exchange is shown within bounds, and says how much is left out', () => {
    const long = 'x'.repeat(SHOWN_TEXT_LENGTH_MAX + 7)
    expect(said({ role: 'assistant', content: long })).toContain('| … and 7 characters more')
    const many = { model: 'm', messages: Array(100_000).fill({ role: 'user', content: long }) }
    const reported = describeExchange({ request: many, response: null })
    expect(reported.asked).toHaveLength(SHOWN_MESSAGES_MAX + 2)
    expect(printExchange(reported).length).toBeLessThan(
      SHOWN_MESSAGES_MAX * (SHOWN_TEXT_LENGTH_MAX + 300),
    )
    expect(
      said({ role: 'assistant', content: '\n'.repeat(1_000_000) }).split('\n').length,
    ).toBeLessThan(60)
    const choices = Array(1000).fill({ index: 0, message: { role: 'assistant', content: 'a' } })
    expect(printExchange(describeExchange({ request: null, response: { choices } }))).toContain(
      '984 choices more',
    )
  })
})
