import { describe, expect, it } from 'vitest'
import { AnswerParser, readBackendError } from '../../../src/agent/answer-chunks.ts'
import { BackendError } from '../../../src/agent/backend-error.ts'
import { textChunk, usageChunk } from '../../support/scripted-backend.ts'

async function read(...events: readonly (object | string)[]): Promise<readonly unknown[]> {
  const text = events
    .map((event) => `data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`)
    .join('')
  const parser = new AnswerParser()
  const chunks = [...parser.push(Buffer.from(text)), ...parser.end()]
  expect(chunks.map(({ text: written }) => JSON.parse(written))).toEqual(chunks.map(({ chunk }) => chunk))
  return chunks.map(({ chunk }) => chunk)
}

describe('AnswerParser', () => {
  it('gives the chunks as they came, the usage last', async () => {
    const chunks = [textChunk('a'), textChunk('', 'stop'), usageChunk(1)]
    expect(await read(...chunks, '[DONE]')).toEqual(chunks)
  })

  it('keeps the usage for the end when the backend sends it earlier, or with a choice', async () => {
    const last = { ...textChunk('', 'stop'), usage: { completion_tokens: 1 } }
    expect(await read(usageChunk(1), textChunk('a'), last, '[DONE]')).toEqual([
      textChunk('a'),
      textChunk('', 'stop'),
      { ...textChunk(''), choices: [], usage: { completion_tokens: 1 } },
    ])
  })

  it('gives no usage chunk when the backend tells none', async () => {
    expect(await read(textChunk('a'), textChunk('', 'stop'), '[DONE]')).toHaveLength(2)
  })

  it('takes a stream without end mark as whole when every choice has ended', async () => {
    expect(await read(textChunk('a'), textChunk('', 'stop'))).toHaveLength(2)
    const second = { choices: [{ index: 1, delta: {}, finish_reason: null }] }
    await expect(read(textChunk('a'), second, textChunk('', 'stop'))).rejects.toThrow('broke off')
  })

  it.each([
    ['no events at all', []],
    ['an end in mid-answer', [textChunk('a')]],
    ['usage alone without end mark', [usageChunk(1)]],
  ])('throws for %s', async (_, events) => {
    await expect(read(...events)).rejects.toThrow('the backend broke off')
  })

  it.each([
    ['text that is no JSON', 'hello'],
    ['an array', '[1]'],
    ['an object without choices', '{"a":1}'],
    ['choices that are no list', '{"choices":{}}'],
    ['a choice that is no object', '{"choices":[1]}'],
  ])('throws BackendError for %s', async (_, event) => {
    await expect(read(event, '[DONE]')).rejects.toThrow(BackendError)
  })

  it('throws the error that a backend reports in the stream, with its code', async () => {
    await expect(read('{"error":{"message":"too long","code":400}}')).rejects.toMatchObject({
      message: 'too long',
      statusCode: 400,
    })
    await expect(read('{"code":500,"message":"oh","type":"server_error"}')).rejects.toThrow('oh')
  })
})

describe('readBackendError', () => {
  it.each([
    [{ error: { message: 'm' } }, 422, 'm', 422],
    [{ error: 'm' }, 404, 'm', 404],
    [{ message: 'm', code: 400 }, 500, 'm', 400],
    [{ detail: 'm' }, 429, 'm', 429],
    [undefined, 503, 'the backend answered with status 503', 500],
    [{ error: { message: 'm' } }, 418, 'm', 500],
  ] as const)('reads %j with status %d', (body, status, message, statusCode) => {
    expect(readBackendError(body, status)).toMatchObject({ message, statusCode })
  })

  it('cuts long messages', () => {
    expect(readBackendError({ error: 'x'.repeat(5_000) }, 400).message).toHaveLength(501)
  })
})
