import { expect, it } from 'vitest'
import { EventPieces } from '#src/nodes/runs/event-pieces.ts'

it.each([
  ['of 1 MB', 1_000_000, 17],
  ['without text', 0, 16 * 32 * 1024 + 1],
])('pieces %s over the limit of an answer are refused', (_, length, count) => {
  const pieces = new EventPieces()
  const chunk = { event: 'a', piece: 'x'.repeat(length), is_last: false }
  for (let sent = 0; sent < count - 1; sent++)
    if (pieces.push(chunk, 1).kind !== 'open') throw new TypeError('expected room for the piece')
  expect(pieces.push(chunk, 1)).toMatchObject({ kind: 'refused' })
})

it('events in pieces follow each other, and each has the bytes of its own frames', () => {
  const pieces = new EventPieces()
  for (const event of ['a', 'b']) {
    expect(pieces.push({ event, piece: '1', is_last: false }, 10)).toEqual({ kind: 'open' })
    const joined = pieces.push({ event, piece: '2', is_last: true }, 20)
    expect(joined).toEqual({ kind: 'whole', chunk: { event, data: '12' }, bytes: 30 })
  }
})

it('the pieces that all runs hold together are bounded, and room is given back', () => {
  const piece = { event: 'x', piece: 'a'.repeat(1024 * 1024), is_last: false }
  const runs = Array.from({ length: 130 }, () => new EventPieces())
  const kinds = runs.map((run) => run.push(piece, 1).kind)
  // Other tests may hold some room.
  expect(kinds.slice(0, 60)).toEqual(Array(60).fill('open'))
  expect(kinds.at(-1)).toBe('refused')
  for (const run of runs) run.drop()
  const again = new EventPieces()
  expect(again.push(piece, 1).kind).toBe('open')
  expect(again.push({ ...piece, is_last: true }, 1).kind).toBe('whole')
})
