import { expect, it } from 'vitest'
import { boundaryOf } from '#src/api/form-frame.ts'

it.each([
  ['multipart/form-data; boundary=abc', 'abc'],
  ['Multipart/Form-Data;boundary="a b"', 'a b'],
  ['multipart/form-data; charset=utf-8; boundary=--x_1; y=z', '--x_1'],
  ['multipart/form-data; charset="utf-8"; boundary=x', 'x'],
  ['multipart/form-data; a="; boundary=y"; b=c; boundary="x"', 'x'],
])('boundaryOf finds the boundary of %s', (type, boundary) => {
  expect(boundaryOf(type)).toBe(boundary)
})

it.each([
  undefined,
  '',
  'application/json',
  'multipart/form-data',
  'multipart/form-data; boundary=',
  'multipart/form-data; boundary=""',
  `multipart/form-data; boundary=${'a'.repeat(71)}`,
  'multipart/mixed; boundary=a',
  'multipart/form-data; boundary="a\r\nb"',
  'multipart/form-data; a="; boundary=x',
  'multipart/form-data; a="; boundary=x"',
  'multipart/form-data; a="\\"; boundary=x',
])('boundaryOf finds no boundary in %s', (type) => {
  expect(boundaryOf(type)).toBeNull()
})

it('boundaryOf reads a hostile header in no time', () => {
  const before = process.cpuUsage()
  expect(boundaryOf(`multipart/form-data${'; boundary '.repeat(1_400)}`)).toBeNull()
  expect(boundaryOf(`multipart/form-data${'; a="boundary=";'.repeat(1_000)}`)).toBeNull()
  expect(boundaryOf(`multipart/form-data${'; boundary="x"y'.repeat(1_000)}`)).toBeNull()
  expect(process.cpuUsage(before).user).toBeLessThan(200_000)
})
