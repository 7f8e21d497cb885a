import { once } from 'node:events'
import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { basename, join } from 'node:path'
import { Readable } from 'node:stream'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CliError, EXIT_CODES } from '#src/cli/faults.ts'
import { createFile, readSource, type SourceOptions, writeFileWhole } from '#src/cli/files.ts'
import { folderOfTest } from '../../support/folders.ts'

let folder = ''
let origin = ''
let answer: (request: IncomingMessage, response: ServerResponse) => void = () => undefined
const server = createServer((request, response) => answer(request, response))

beforeEach(async () => {
  folder = folderOfTest()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterEach(async () => {
  server.close()
  server.closeAllConnections()
})

const options: SourceOptions = { apiKey: null, stdin: Readable.from([]) }

async function textOf(source: string, more: Partial<SourceOptions> = {}): Promise<string> {
  return Buffer.from(await readSource(source, { ...options, ...more })).toString()
}

async function refusalOf(source: string, more: Partial<SourceOptions> = {}): Promise<CliError> {
  const fault = await textOf(source, more).catch((caught: unknown) => caught)
  if (fault instanceof CliError) return fault
  throw fault
}

describe('readSource', () => {
  it('readSource reads files, standard input and URLs', async () => {
    await writeFile(join(folder, 'a'), 'from a file')
    answer = (_, response) => response.end('from a URL')
    expect(await textOf(join(folder, 'a'))).toBe('from a file')
    expect(
      await textOf('-', { stdin: Readable.from([Buffer.from('from '), Buffer.from('stdin')]) }),
    ).toBe('from stdin')
    expect(await textOf(`${origin}/record`)).toBe('from a URL')
  })

  it('readSource sends the key to the URL', async () => {
    answer = (request, response) => response.end(request.headers.authorization ?? 'none')
    expect(await textOf(origin, { apiKey: 'k' })).toBe('Bearer k')
    expect(await textOf(origin)).toBe('none')
  })

  it('readSource does not send a key in the clear beyond this machine', async () => {
    const refusal = await refusalOf('http://gateway.example.com/x', { apiKey: 'hush' })
    expect(refusal.message).toContain('expected https')
    expect(refusal.message).not.toContain('hush')
  })

  it.each([401, 403])('readSource adds the advice about a key to an answer %i', async (status) => {
    answer = (_, response) => response.writeHead(status).end()
    const refusal = await refusalOf(origin, { keyHint: '--key, or a variable' })
    expect(refusal.message).toMatch(/answered \d+ \(--key, or a variable\)$/)
    expect((await refusalOf(origin)).message).not.toContain('(')
  })

  it('readSource does not follow redirects', async () => {
    answer = (_, response) => response.writeHead(302, { location: '/elsewhere' }).end()
    expect((await refusalOf(origin)).message).toContain('answered 302')
  })

  it('readSource tells the message of the error envelope, without its control characters', async () => {
    answer = (_, response) =>
      response.writeHead(404).end('{"error":{"message":"not \\u001b[31mhere"}}')
    expect((await refusalOf(origin)).message).toMatch(/answered 404: not \\u\{1b\}\[31mhere$/)
  })

  it.each(['-', 'file', 'url'])('readSource stops at the limit of bytes (%s)', async (kind) => {
    await writeFile(join(folder, 'a'), 'x'.repeat(101))
    answer = (_, response) => response.end('x'.repeat(101))
    const sources: Record<string, string> = { '-': '-', file: join(folder, 'a'), url: origin }
    const stdin = Readable.from([Buffer.alloc(101)])
    const refusal = await refusalOf(sources[kind] ?? '', { bytesMax: 100, stdin })
    expect(refusal).toMatchObject({
      exitCode: EXIT_CODES.unavailable,
      message: expect.stringContaining('at most 100 bytes'),
    })
  })

  it('readSource gives up on a URL that never ends', async () => {
    answer = (_, response) => response.write('x')
    expect((await refusalOf(origin, { timeoutMs: 200 })).message).toContain('took too long')
  })

  it('readSource names the address that it could not connect to', async () => {
    server.close()
    server.closeAllConnections()
    expect((await refusalOf(origin)).message).toContain('ECONNREFUSED')
    server.listen(0, '127.0.0.1')
  })
})

describe('writing', () => {
  it('createFile writes a file that was not there, and leaves one that was as it is', async () => {
    const path = join(folder, 'new.key')
    await createFile(path, 'one\n', 0o600)
    expect((await stat(path)).mode & 0o777).toBe(0o600)
    await expect(createFile(path, 'two\n', 0o600)).rejects.toThrow(`cannot write ${path}: EEXIST`)
    expect(await readFile(path, 'utf8')).toBe('one\n')
    expect(await readdir(folder)).toEqual(['new.key'])
  })

  it('a draft that cannot be placed is removed', async () => {
    await expect(writeFileWhole(folder, 'text')).rejects.toThrow(`cannot write ${folder}: `)
    expect(await readdir(join(folder, '..'))).not.toContainEqual(
      expect.stringMatching(new RegExp(`^${basename(folder)}\\.`)),
    )
  })
})
