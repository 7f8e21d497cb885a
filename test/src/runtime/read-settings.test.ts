import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import {
  flag,
  integer,
  oneOf,
  port,
  positiveNumber,
  secret,
  text,
  url,
} from '../../../src/runtime/fields.ts'
import { ConfigurationError, readSettings } from '../../../src/runtime/read-settings.ts'

const schema = z.object({
  PORT: port.default(3000),
  SIZE: integer({ min: 1, max: 9 }).optional(),
  FEE: positiveNumber({ max: 10 }).optional(),
  ON: flag.default(false),
  LEVEL: oneOf(['low', 'high']).default('low'),
  DATABASE: url(['postgres']).optional(),
  KEY: secret.optional(),
  NAME: text.optional(),
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
  it('gives defaults for what is unset or empty, and ignores other variables', () => {
    const settings = readSettings(schema, { PORT: '', SIZE: '', OTHER: 'x' })
    expect(settings).toEqual({ PORT: 3000, ON: false, LEVEL: 'low' })
  })

  it('reads every kind of field', () => {
    const given = {
      PORT: '0',
      SIZE: '9',
      FEE: '0.5',
      ON: 'true',
      LEVEL: 'high',
      DATABASE: 'postgres://u:p@h/d',
      KEY: 'k',
    }
    expect(readSettings(schema, given)).toEqual({ ...given, PORT: 0, SIZE: 9, FEE: 0.5, ON: true })
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
  ])('refuses %s = %j', (name, value) => {
    expect(faultsOf({ [name]: value })).toEqual([
      expect.stringMatching(new RegExp(`^${name}: expected `)),
    ])
  })

  it('reports all faults together', () => {
    expect(faultsOf({ PORT: 'x', SIZE: 'y', LEVEL: 'z' })).toEqual([
      'PORT: expected a whole number from 0 to 65535, got "x"',
      'SIZE: expected a whole number from 1 to 9, got "y"',
      'LEVEL: expected one of low, high, got "z"',
    ])
  })

  it('never repeats a secret or a URL', () => {
    const faults = faultsOf({ KEY: 'hush hush', DATABASE: 'mysql://user:hush@host/' })
    expect(faults).toHaveLength(2)
    expect(faults.join()).not.toContain('hush')
  })
})
