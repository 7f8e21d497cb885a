import { expect, it } from 'vitest'
import { base64Format, plainBase64 } from '#src/images/openai-images.ts'

it.each([
  'gpt-image-1',
  'GPT-Image-1',
  'chatgpt-image-latest',
  'azure/gpt-image-1',
  'openai:gpt-image-1',
  'openai.gpt-image-1.5',
])('base64Format names no format to %s, which would refuse it', (model) => {
  expect(base64Format(model)).toEqual({})
})

it.each(['dall-e-3', 'demo/image', 'mygpt-image-2'])('base64Format asks %s for base64', (model) => {
  expect(base64Format(model)).toEqual({ response_format: 'b64_json' })
})

it.each([
  'iVBORw0KGgo=',
  'data:image/png;base64,iVBORw0KGgo=',
  'data:image/svg+xml;charset=utf-8;base64,iVBORw0KGgo=',
  'iVBO\r\nRw0K\nGgo=\n',
])('plainBase64 gives the base64 of %j', (text) => {
  expect(plainBase64(text)).toBe('iVBORw0KGgo=')
})

it('plainBase64 leaves the text of another data URL as it is', () => {
  expect(plainBase64('data:text/html;base64,AAAA')).toBe('data:text/html;base64,AAAA')
})
