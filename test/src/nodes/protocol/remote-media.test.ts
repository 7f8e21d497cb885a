import { expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import { remoteMediaFault, remoteMediaOf } from '#src/nodes/protocol/remote-media.ts'

const asked = (part: unknown): JsonObject => ({
  messages: [{ role: 'user', content: [{ type: 'text', text: 'What is it?' }, part] as never }],
})
const image = (url: unknown) => ({ type: 'image_url', image_url: { url } })
const pdf = { type: 'base64', media_type: 'application/pdf', data: 'AAAA' }
const words = { type: 'text', media_type: 'text/plain', data: 'https://example.org is down' }
const site = 'https://example.org'

it.each([
  ['a data URL', image('data:image/png;base64,AAAA')],
  ['a data URL, whatever its case', image('DATA:image/png;base64,AAAA')],
  ['a text with an address in it', { type: 'text', text: 'https://example.org/a.png' }],
  ['a refusal with an address in it', { type: 'refusal', refusal: 'https://example.org' }],
  ['a sound', { type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } }],
  ['a file in base64', { type: 'file', file: { file_data: 'AAAA', filename: 'a.pdf' } }],
  ['a file by its id', { type: 'file', file: { file_id: 'file-1' } }],
  // https://github.com/stdapi-ai/stdapi.ai/issues/131
  ['the source of a search result', { type: 'search_result', source: site, title: site }],
  ['the title of a document', { type: 'document', title: site, context: site, source: pdf }],
  ['the words of a document', { type: 'document', source: words }],
  ['a document of text', { type: 'document', source: { type: 'content', content: site } }],
  ['the result of a tool', { type: 'tool_result', tool_use_id: 't', content: site }],
  ['a thought', { type: 'thinking', thinking: site, signature: 's' }],
  ['the name of a file', { type: 'input_file', filename: site, file_data: 'AAAA' }],
  [
    'results of a web search',
    { type: 'web_search_tool_result', content: [{ type: 'web_search_result', url: site }] },
  ],
  [
    'a fetched page',
    { type: 'web_fetch_tool_result', content: { type: 'web_fetch_result', url: site } },
  ],
])('remoteMediaOf finds no address in %s', (_, part) =>
  expect(remoteMediaOf(asked(part))).toBeNull(),
)

it.each([
  ['an image', image('https://example.org/a.png'), 'image_url.url', true],
  ['an image over http', image('HTTP://169.254.169.254/latest'), 'image_url.url', true],
  ['a file of the machine', image('file:///etc/passwd'), 'image_url.url', false],
  ['an address behind white space', image(' http://10.0.0.1/'), 'image_url.url', false],
  ['an address without a scheme', image('//10.0.0.1/a.png'), 'image_url.url', false],
  [
    'an image that is no object, beside the one that counts',
    { ...image('data:,'), video_url: 'https://example.org/v' },
    'video_url',
    true,
  ],
  [
    'a member that the interface does not have',
    { type: 'text', text: 'x', audio_url: { url: 'http://10.0.0.1' } },
    'audio_url.url',
    true,
  ],
  [
    'an address by its form alone',
    { type: 'text', text: 'x', image: 's3://bucket/a.png' },
    'image',
    false,
  ],
  [
    'the bytes of a file',
    { type: 'file', file: { file_data: 'https://example.org/a.pdf' } },
    'file.file_data',
    true,
  ],
  // https://github.com/stdapi-ai/stdapi.ai/issues/131
  [
    'an image by its source',
    { type: 'image', source: { type: 'url', url: site } },
    'source.url',
    true,
  ],
  [
    'a document by its source',
    { type: 'document', title: site, source: { type: 'url', url: site } },
    'source.url',
    true,
  ],
  ['an image of Responses', { type: 'input_image', image_url: site }, 'image_url', true],
  ['a file of Responses', { type: 'input_file', file_url: site }, 'file_url', true],
  ['a source that no search result has', { type: 'image', source: site }, 'source', true],
  [
    'an image in a search result',
    { type: 'search_result', source: site, image_url: { url: site } },
    'image_url.url',
    true,
  ],
  [
    'a sound that calls itself a text',
    { type: 'input_audio', input_audio: { type: 'text', data: site } },
    'input_audio.data',
    true,
  ],
  [
    'an image in the result of a tool',
    { type: 'tool_result', content: [{ type: 'image', source: { type: 'url', url: site } }] },
    'content.0.source.url',
    true,
  ],
])('remoteMediaOf finds %s, and where it is', (_, part, place, isWeb) =>
  expect(remoteMediaOf(asked(part))).toEqual({ path: `messages.0.content.1.${place}`, isWeb }),
)

it('remoteMediaOf gives an address that is not of the web before one that is, in any message', () => {
  const content = [image('https://example.org/a.png')]
  const messages = [
    { role: 'user', content },
    { role: 'tool', content: [image('file:///etc/passwd')] },
  ]
  expect(remoteMediaOf({ messages } as unknown as JsonObject)).toEqual({
    path: 'messages.1.content.0.image_url.url',
    isWeb: false,
  })
})

it('remoteMediaOf reads parts that are nested deeper than a stack is', () => {
  let part: unknown = image('https://example.org')
  for (let depth = 0; depth < 50_000; depth++) part = [part]
  expect(remoteMediaOf(asked(part))?.isWeb).toBe(true)
})

it.each([{}, { messages: 'none' }, { messages: [null, 'x', { content: 'https://a.b' }] }])(
  'remoteMediaOf finds nothing in what has no parts: %j',
  (request) => expect(remoteMediaOf(request as JsonObject)).toBeNull(),
)

it('a fault of remote media names the member and what to do, without the address', () => {
  const media = remoteMediaOf(asked(image('https://example.org/secret-name')))
  if (media === null) throw new Error('expected an address')
  const fault = remoteMediaFault(media)
  expect(fault).toContain('messages.0.content.1.image_url.url: expected a data URL')
  expect(fault).not.toContain('secret-name')
})
