import { execFileSync } from 'node:child_process'
import { chmodSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  flag,
  integer,
  oneOf,
  port,
  positiveNumber,
  secret,
  textField,
  url,
} from '#src/runtime/fields.ts'
import { ConfigurationError, readSettings } from '#src/runtime/read-settings.ts'
import { folderOfFile } from '../../support/folders.ts'

const schema = z.object({
  PORT: port.default(3000),
  SIZE: integer({ min: 1, max: 9 }).optional(),
  FEE: positiveNumber({ max: 10 }).optional(),
  ON: flag.default(false),
  LEVEL: oneOf(['low', 'high']).default('low'),
  DATABASE: url(['postgres']).optional(),
  KEY: secret.optional(),
  NAME: textField.optional(),
})

function faultsOf(environment: Record<string, string>): readonly string[] {
  try {
    readSettings(schema, environment)
  } catch (fault) {
    if (fault instanceof ConfigurationError) return fault.faults
    throw fault
  }
  return []
}

describe('readSettings', () => {
  it('readSettings gives defaults for what is unset or empty, and ignores other variables', () => {
    const settings = readSettings(schema, { PORT: '', SIZE: '', OTHER: 'x' })
    expect(settings).toEqual({ PORT: 3000, ON: false, LEVEL: 'low' })
  })

  it.each([
    ['PORT', '65536'],
    ['PORT', '-1'],
    ['PORT', '1e3'],
    ['PORT', '0x10'],
    ['PORT', ' 1'],
    ['SIZE', '0'],
    ['SIZE', '10'],
    ['SIZE', '9999999999999999999'],
    ['FEE', '0'],
    ['FEE', '10.1'],
    ['FEE', '1.'],
    ['FEE', 'NaN'],
    ['ON', 'yes'],
    ['LEVEL', 'toString'],
    ['DATABASE', 'mysql://x'],
    ['DATABASE', 'nonsense'],
    ['KEY', 'with blank'],
    ['KEY', 'line\nbreak'],
  ])('readSettings refuses %s = %j', (name, value) => {
    expect(faultsOf({ [name]: value })).toEqual([
      expect.stringMatching(new RegExp(`^${name}: expected `)),
    ])
  })

  it('readSettings reports all faults together', () => {
    expect(faultsOf({ PORT: 'x', SIZE: 'y', LEVEL: 'z' })).toEqual([
      'PORT: expected a whole number from 0 to 65535, got "x"',
      'SIZE: expected a whole number from 1 to 9, got "y"',
      'LEVEL: expected one of low, high, got "z"',
    ])
  })

  it('readSettings never repeats a secret or a URL', () => {
    const faults = faultsOf({ KEY: 'hush hush', DATABASE: 'mysql://user:hush@host/' })
    expect(faults).toHaveLength(2)
    expect(faults.join()).not.toContain('hush')
  })
})

describe('secrets in files', () => {
  const folder = folderOfFile()
  const fileOf = (name: string, content: string | Uint8Array, mode = 0o600) => {
    const file = join(folder, name)
    writeFileSync(file, content)
    chmodSync(file, mode)
    return file
  }

  it.each([
    ['line feed', 'hush\n'],
    ['carriage return and line feed', 'hush\r\n'],
    ['no end of line', 'hush'],
  ])('a secret is the one line of a file that ends with a %s', (name, content) => {
    const warnings: string[] = []
    const environment = { KEY_FILE: fileOf(name, content) }
    const settings = readSettings(
      schema,
      environment,
      () => [],
      (sentence) => warnings.push(sentence),
    )
    expect(settings).toMatchObject({ KEY: 'hush' })
    expect(warnings).toEqual([])
  })

  it('a link to a secret’s file is followed, and a file that every user may read is warned of', () => {
    const link = join(folder, 'link')
    symlinkSync(fileOf('open', 'hush\n', 0o644), link)
    const warnings: string[] = []
    const read = () =>
      readSettings(
        schema,
        { KEY_FILE: link },
        () => [],
        (sentence) => warnings.push(sentence),
      )
    expect(read().KEY).toBe('hush')
    expect(warnings).toEqual([
      'KEY_FILE: expected a file that others cannot read (mode 600 or 640)',
    ])
  })

  it('a setting that is not a secret has no file', () => {
    expect(readSettings(schema, { NAME_FILE: fileOf('name', 'x') })).not.toHaveProperty('NAME')
  })

  it.each([
    ['a file that is missing', 'hush-missing', 'KEY_FILE: the file cannot be read (ENOENT)'],
    ['a folder', '.', 'KEY_FILE: expected a regular file'],
    [
      'an empty file',
      fileOf('empty', '\n'),
      'KEY_FILE: expected a value in the file, which is empty',
    ],
    ['two lines', fileOf('two', 'hush\nhush'), 'KEY_FILE: expected one line in the file'],
    [
      'an empty second line',
      fileOf('blank', 'hush\n\n'),
      'KEY_FILE: expected one line in the file',
    ],
    ['what is no text', fileOf('bytes', Uint8Array.of(0xff)), 'KEY_FILE: expected text in UTF-8'],
    [
      'a large file',
      fileOf('large', 'hush'.repeat(20_000)),
      'KEY_FILE: expected a file of at most 65536 bytes',
    ],
    [
      'what the setting refuses',
      fileOf('blanks', 'hush hush'),
      'KEY: expected printable ASCII without blanks, at most 4096 characters',
    ],
  ])('a secret’s file is refused without being repeated: %s', (_, file, expected) => {
    expect(faultsOf({ KEY_FILE: file })).toEqual([expected])
  })

  it('a secret’s file that is a pipe is not waited for', () => {
    const pipe = join(folder, 'pipe')
    execFileSync('mkfifo', [pipe])
    expect(faultsOf({ KEY_FILE: pipe })).toEqual(['KEY_FILE: expected a regular file'])
  })

  it('a variable and its file are refused together', () => {
    expect(faultsOf({ KEY: 'hush', KEY_FILE: fileOf('both', 'hush') })).toEqual([
      'KEY: unexpected together with KEY_FILE',
    ])
  })

  it('a faulty file of a secret is reported beside other faults, without faults that only follow from it', () => {
    try {
      readSettings(schema, { KEY_FILE: 'hush', PORT: 'x' }, () => ['NAME: expected with KEY'])
      expect.unreachable()
    } catch (fault) {
      expect(fault).toHaveProperty('faults', [
        'KEY_FILE: the file cannot be read (ENOENT)',
        'PORT: expected a whole number from 0 to 65535, got "x"',
      ])
    }
  })
})
