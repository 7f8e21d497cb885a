import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { listSettings, readSettingsPage, renderSettings } from './settings-page.ts'

describe('docs/settings.md', () => {
  it('docs/settings.md is what `npm run docs` writes', () => {
    expect(readSettingsPage()).toBe(renderSettings())
  })

  it('the settings of the gateway include those of its rooms, each variable once', () => {
    const names = listSettings('src/config.ts').flatMap((setting) => setting.names)
    for (const name of [
      'NODE_ENV',
      'CHAIN_ID',
      'ENCLAVE_URL',
      'OTEL_SERVICE_NAME',
      'PUBLIC_URL',
      'GROQ_API_KEY',
      'ATTESTED_PROVIDERS',
    ])
      expect(names).toContain(name)
    expect(new Set(names).size).toBe(names.length)
  })

  it('the settings of the enclave include every variable that it reads', () => {
    const source = readFileSync(join(import.meta.dirname, '../../enclave/config.ts'), 'utf8')
    const read = [...source.matchAll(/variables\.\w+\(\s*'([A-Z_0-9]+)'/g)].map(([, name]) => name)
    const names = listSettings('enclave/config.ts').flatMap((setting) => setting.names)
    expect(read.length).toBeGreaterThan(15)
    expect(read.filter((name) => !names.includes(name ?? ''))).toEqual([])
  })
})
