import { encodeUtf8 } from '../bytes.ts'
import { JsonError, type JsonErrorCode } from './json-error.ts'
import type { JsonSize } from './json-size.ts'
import { type Json, setMember } from './value.ts'

export type NumberFault = 'unsafe_integer' | 'inexact_number' | 'number_overflow'

type ReaderInput = {
  /** Has no lone surrogates itself. Only its escapes can produce lone surrogates. */
  readonly text: string
  readonly depthMax: number
  readonly sizeMax: JsonSize
  /**
   * Returns the reason to refuse a number, or null. `isInteger`: written without fraction and
   * exponent. Not called for integers of up to 15 digits: a double holds all of them.
   */
  readonly numberFault: (literal: string, value: number, isInteger: boolean) => NumberFault | null
}

/**
 * Reads one attacker-controlled text in one pass, in linear time and memory. `sizeMax` limits
 * memory: parts are counted before they are created. `depthMax` limits the call depth. Every
 * refusal is a JsonError.
 */
export class JsonReader {
  private readonly input: ReaderInput
  private readonly text: string
  private position = 0
  private containers = 0
  private members = 0
  private items = 0
  private readonly path: (string | number)[] = []

  constructor(input: ReaderInput) {
    this.input = input
    this.text = input.text
  }

  read(): Json {
    this.skipSpace()
    const value = this.readValue()
    this.skipSpace()
    if (this.position < this.text.length) this.fail('syntax', 'expected nothing after the value')
    return value
  }

  private readValue(): Json {
    const code = this.text.charCodeAt(this.position)
    switch (code) {
      case QUOTE:
        return this.readString()
      case 0x7b:
        return this.readObject()
      case 0x5b:
        return this.readArray()
      case 0x74:
        return this.readWord('true', true)
      case 0x66:
        return this.readWord('false', false)
      case 0x6e:
        return this.readWord('null', null)
      default:
        if (code === MINUS || isDigit(code)) return this.readNumber()
        return this.fail('syntax', 'expected a value')
    }
  }

  private readObject(): Json {
    const object: Record<string, Json> = {}
    this.enter()
    if (this.text.charCodeAt(this.position) === 0x7d) {
      this.position++
      return object
    }
    for (;;) {
      const nameOffset = this.position
      if (this.text.charCodeAt(nameOffset) !== QUOTE) this.fail('syntax', 'expected a member name')
      const name = this.readString()
      this.path.push(name)
      if (Object.hasOwn(object, name))
        this.fail('duplicate_key', 'expected each member name once', nameOffset)
      if (++this.members > this.input.sizeMax.members)
        this.fail('too_many', `expected at most ${this.input.sizeMax.members} members`, nameOffset)
      this.skipSpace()
      this.expect(0x3a, 'expected a colon after the member name')
      this.skipSpace()
      setMember(object, name, this.readValue())
      this.path.pop()
      this.skipSpace()
      if (this.closes(0x7d, 'expected a comma or the end of the object')) return object
    }
  }

  private readArray(): Json {
    const array: Json[] = []
    this.enter()
    if (this.text.charCodeAt(this.position) === 0x5d) {
      this.position++
      return array
    }
    for (;;) {
      if (++this.items > this.input.sizeMax.items)
        this.fail('too_many', `expected at most ${this.input.sizeMax.items} items`)
      this.path.push(array.length)
      array.push(this.readValue())
      this.path.pop()
      this.skipSpace()
      if (this.closes(0x5d, 'expected a comma or the end of the array')) return array
    }
  }

  /** Skips an opening bracket. The length of `path` is the number of open containers. */
  private enter(): void {
    if (this.path.length >= this.input.depthMax)
      this.fail(
        'too_deep',
        `expected at most ${this.input.depthMax} arrays and objects inside each other`,
      )
    if (++this.containers > this.input.sizeMax.containers)
      this.fail('too_many', `expected at most ${this.input.sizeMax.containers} arrays and objects`)
    this.position++
    this.skipSpace()
  }

  /** Skips the closing bracket and returns true, or skips a comma and space and returns false. */
  private closes(bracket: number, expectation: string): boolean {
    const code = this.text.charCodeAt(this.position)
    if (code === bracket) {
      this.position++
      return true
    }
    this.expect(0x2c, expectation)
    this.skipSpace()
    return false
  }

  private readString(): string {
    const { text } = this
    const start = this.position + 1
    let end = start
    let code = text.charCodeAt(end)
    while (code >= 0x20 && code !== QUOTE && code !== BACKSLASH) code = text.charCodeAt(++end)
    if (code === BACKSLASH) return this.readEscapedString(end)
    if (code !== QUOTE) this.failInString(end)
    this.position = end + 1
    return text.slice(start, end)
  }

  /** Reads a string whose first backslash is at `index`. JSON.parse unescapes it. */
  private readEscapedString(index: number): string {
    const { text } = this
    const start = this.position
    let end = index
    let hasSurrogateEscape = false
    for (let code = text.charCodeAt(end); code !== QUOTE; code = text.charCodeAt(end)) {
      if (code === BACKSLASH) {
        const length = this.escapeLength(end)
        hasSurrogateEscape ||= length === 6 && (text.charCodeAt(end + 2) | 0x20) === 0x64
        end += length
      } else if (code >= 0x20) end++
      else this.failInString(end)
    }
    const value: string = JSON.parse(text.slice(start, end + 1))
    if (hasSurrogateEscape && !value.isWellFormed())
      this.fail('lone_surrogate', 'expected whole surrogate pairs in the string')
    this.position = end + 1
    return value
  }

  private escapeLength(offset: number): number {
    const code = this.text.charCodeAt(offset + 1)
    if (code !== 0x75) {
      if (!SHORT_ESCAPES.has(code)) this.fail('syntax', 'expected a known escape', offset)
      return 2
    }
    for (let index = offset + 2; index < offset + 6; index++)
      if (!isHexDigit(this.text.charCodeAt(index)))
        this.fail('syntax', 'expected four hex digits', offset)
    return 6
  }

  private readNumber(): number {
    const { text } = this
    const start = this.position
    const wholeStart = text.charCodeAt(start) === MINUS ? start + 1 : start
    const wholeEnd = this.digitsEnd(wholeStart, 'expected a digit')
    if (text.charCodeAt(wholeStart) === 0x30 && wholeEnd - wholeStart > 1)
      this.fail('syntax', 'expected no leading zero', wholeStart)
    const next = text.charCodeAt(wholeEnd)
    const isInteger = next !== POINT && (next | 0x20) !== 0x65
    if (isInteger && wholeEnd - wholeStart <= 15) {
      this.position = wholeEnd
      return this.shortInteger(start, wholeStart, wholeEnd)
    }
    const end = isInteger ? wholeEnd : this.fractionEnd(wholeEnd)
    const literal = text.slice(start, end)
    const value = Number(literal)
    const fault = this.input.numberFault(literal, value, isInteger)
    if (fault !== null) this.fail(fault, NUMBER_EXPECTATIONS[fault])
    this.position = end
    return value
  }

  /** A double holds 15 digits exactly, so a usual number needs no string. */
  private shortInteger(start: number, wholeStart: number, end: number): number {
    let value = 0
    for (let index = wholeStart; index < end; index++)
      value = value * 10 + this.text.charCodeAt(index) - 0x30
    return start === wholeStart ? value : -value
  }

  private fractionEnd(wholeEnd: number): number {
    const { text } = this
    let end = wholeEnd
    if (text.charCodeAt(end) === POINT)
      end = this.digitsEnd(end + 1, 'expected a digit after the point')
    if ((text.charCodeAt(end) | 0x20) !== 0x65) return end
    const sign = text.charCodeAt(end + 1)
    return this.digitsEnd(
      sign === 0x2b || sign === MINUS ? end + 2 : end + 1,
      'expected an exponent',
    )
  }

  private digitsEnd(start: number, expectation: string): number {
    let end = start
    while (isDigit(this.text.charCodeAt(end))) end++
    if (end === start) this.fail('syntax', expectation, end)
    return end
  }

  private readWord<Value extends Json>(word: string, value: Value): Value {
    if (!this.text.startsWith(word, this.position)) this.fail('syntax', 'expected a value')
    this.position += word.length
    return value
  }

  private skipSpace(): void {
    let code = this.text.charCodeAt(this.position)
    while (code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09)
      code = this.text.charCodeAt(++this.position)
  }

  private expect(code: number, expectation: string): void {
    if (this.text.charCodeAt(this.position) !== code) this.fail('syntax', expectation)
    this.position++
  }

  private failInString(offset: number): never {
    const isEnd = offset >= this.text.length
    return this.fail(
      'syntax',
      isEnd ? 'expected a closing quote' : 'expected no control character',
      offset,
    )
  }

  private fail(code: JsonErrorCode, expectation: string, offset = this.position): never {
    const bytesBefore = encodeUtf8(this.text.slice(0, offset)).length
    throw new JsonError(code, expectation, { path: [...this.path], offset: bytesBefore })
  }
}

const QUOTE = 0x22
const MINUS = 0x2d
const POINT = 0x2e
const BACKSLASH = 0x5c

/** Characters that may follow a backslash, except u: " \ / b f n r t */
const SHORT_ESCAPES: ReadonlySet<number> = new Set([0x22, 0x5c, 0x2f, 0x62, 0x66, 0x6e, 0x72, 0x74])

const NUMBER_EXPECTATIONS: Readonly<Record<NumberFault, string>> = {
  unsafe_integer: 'expected a number that a double holds exactly, this one is beyond ±(2^53-1)',
  inexact_number:
    'expected a number as canonical JSON writes it, this one has digits that a double loses',
  number_overflow: 'expected a number within the range of a double',
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39
}

function isHexDigit(code: number): boolean {
  const lower = code | 0x20
  return isDigit(code) || (lower >= 0x61 && lower <= 0x66)
}
