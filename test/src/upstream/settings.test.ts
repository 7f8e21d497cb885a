import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readGatewayConfig } from '../../../src/config.ts'
import { ConfigurationError } from '../../../src/runtime/read-settings.ts'

const upstreamOf = (environment: Record<string, string>) => readGatewayConfig(environment).upstream

function faultsOf(environment: Record<string, string>): readonly string[] {
  try {
    readGatewayConfig(environment)
  } catch (fault) {
    if (fault instanceof ConfigurationError) return fault.faults
    throw fault
  }
  return []
}

const EMBEDDINGS = {
  EMBEDDINGS_URL: 'https://api.example.com/v1',
  EMBEDDINGS_MODELS: 'small, a/b:latest=512',
}

describe('the services that the gateway calls', () => {
  it('are none when nothing is set', () => {
    expect(upstreamOf({})).toMatchObject({ embeddings: null, search: null })
  })

  it('make embeddings, with the limits of each model', () => {
    expect(
      upstreamOf({ ...EMBEDDINGS, EMBEDDINGS_API_KEY: 'k', EMBEDDINGS_BATCH_MAX: '7' }).embeddings,
    ).toEqual({
      url: 'https://api.example.com/v1',
      apiKey: 'k',
      models: [
        { id: 'small', inputTokensMax: 8192 },
        { id: 'a/b:latest', inputTokensMax: 512 },
      ],
      batchInputsMax: 7,
      timeoutMs: 60_000,
    })
  })

  it.each(['a=0', 'a=x', '=5', 'a=1=2', 'a=12345678'])('refuses %s as models', (models) => {
    expect(faultsOf({ ...EMBEDDINGS, EMBEDDINGS_MODELS: models })).toEqual([
      expect.stringContaining('EMBEDDINGS_MODELS: expected ids'),
    ])
  })

  it.each([
    'ftp://a',
    'https://user@a/',
    'https://user:hush@a/',
    'https://a/?hush=1',
    'https://a/#hush',
    'a',
  ])('refuses %s as an address, and does not repeat it', (url) => {
    const faults = faultsOf({ ...EMBEDDINGS, EMBEDDINGS_URL: url })
    expect(faults).toEqual([expect.stringContaining('EMBEDDINGS_URL: expected')])
    expect(faults.join()).not.toContain('hush')
  })

  it('search where the provider is, or where the operator says', () => {
    expect(upstreamOf({ SEARCH_PROVIDER: 'brave', SEARCH_API_KEY: 'k' }).search).toEqual({
      provider: 'brave',
      url: 'https://api.search.brave.com/res/v1',
      apiKey: 'k',
      timeoutMs: 10_000,
    })
    expect(
      upstreamOf({ SEARCH_PROVIDER: 'searxng', SEARCH_URL: 'http://searxng:8080' }).search,
    ).toMatchObject({
      url: 'http://searxng:8080',
      apiKey: null,
    })
  })

  it.each([
    [{ EMBEDDINGS_URL: 'http://a/v1' }, 'EMBEDDINGS_MODELS: '],
    [{ EMBEDDINGS_MODELS: 'a' }, 'EMBEDDINGS_URL: '],
    [{ EMBEDDINGS_API_KEY: 'a' }, 'EMBEDDINGS_URL: '],
    [{ SEARCH_URL: 'http://a' }, 'SEARCH_PROVIDER: '],
    [{ SEARCH_API_KEY: 'a' }, 'SEARCH_PROVIDER: '],
    [{ SEARCH_PROVIDER: 'tavily' }, 'SEARCH_API_KEY: '],
    [{ SEARCH_PROVIDER: 'searxng' }, 'SEARCH_URL: '],
    [
      { SEARCH_PROVIDER: 'searxng', SEARCH_URL: 'http://a', SEARCH_API_KEY: 'k' },
      'SEARCH_API_KEY: unexpected',
    ],
    [
      { SEARCH_PROVIDER: 'google' },
      'SEARCH_PROVIDER: expected one of searxng, brave, tavily, serpapi',
    ],
  ])('refuses %j alone', (given, fault) => {
    expect(faultsOf({ ...given } as Record<string, string>)).toContainEqual(
      expect.stringContaining(fault),
    )
  })

  it('have variables that each say what they mean', () => {
    const source = readFileSync(
      join(import.meta.dirname, '../../../src/upstream/settings.ts'),
      'utf8',
    )
    const lines = source.slice(0, source.indexOf('type Settings')).split('\n')
    const fields = lines.filter((line) => /^ {2}[A-Z0-9_]+: /.test(line))
    expect(fields.length).toBeGreaterThan(8)
    expect(
      fields.filter((field) => !lines[lines.indexOf(field) - 1]?.trim().endsWith('*/')),
    ).toEqual([])
  })
})
