import { describe, expect, it } from 'vitest'
import { base64Format } from '../../../src/images/openai-images.ts'

describe('base64Format', () => {
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

  it.each(['dall-e-3', 'demo/image', 'mygpt-image-2'])(
    'base64Format asks %s for base64',
    (model) => {
      expect(base64Format(model)).toEqual({ response_format: 'b64_json' })
    },
  )
})
