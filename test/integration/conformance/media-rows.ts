import { jpegOf, pngOf, webpOf } from '../../support/image-files.ts'
import {
  beyondSchema,
  type FieldRow,
  integerRow,
  NO_TEXT,
  refuse,
  refuseAt,
  requiredTextRow,
  textRow,
  wordRow,
} from './field-row.ts'

/** The smallest requests. */
export const GENERATION = { model: 'demo/image', prompt: 'a whale', size: '256x256' }
export const EDIT = { ...GENERATION, image: new Uint8Array(pngOf(64)) }
export const EMBEDDING = { model: 'demo/embedding', input: 'a whale' }
export const SEARCH = { query: 'whales' }

const IMAGE_SIZES = ['256x256', '512x512', '1024x1024']

/** Interface, 2.5 and part 8: making images. */
export const GENERATION_ROWS: readonly FieldRow[] = [
  requiredTextRow('prompt', 'a whale'),
  requiredTextRow('model', 'demo/image'),
  { ...integerRow('n', { min: 1, max: 10 }), default: 1 },
  { ...wordRow('quality', ['standard', 'hd']), default: 'standard' },
  { ...wordRow('response_format', ['url', 'b64_json']), default: 'url' },
  { ...wordRow('size', IMAGE_SIZES), default: '1024x1024' },
  { ...wordRow('style', ['vivid', 'natural']), default: 'vivid' },
  textRow('user'),
]

const noWord = (...texts: readonly string[]) => refuse('literal_error', ...texts)

/** Interface, 2.5 and part 8: editing images. The fields of a form are texts and one file. */
export const EDIT_ROWS: readonly FieldRow[] = [
  {
    field: 'image',
    accepts: [pngOf(1), jpegOf(8_192, 1), webpOf('VP8X', 8, 8)].map(
      (bytes) => new Uint8Array(bytes),
    ),
    rejects: [
      ...refuse('missing', undefined),
      ...beyondSchema([
        ...refuse(
          'image_type',
          ...['GIF89a', '', '<svg/>'].map((text) => new TextEncoder().encode(text)),
        ),
        ...refuse('image_size', new Uint8Array(jpegOf(8_193, 1))),
      ]),
    ],
  },
  {
    field: 'prompt',
    accepts: ['a whale'],
    rejects: [...refuse('missing', undefined), ...refuse('string_too_short', '')],
  },
  {
    field: 'model',
    accepts: ['demo/image'],
    rejects: [...refuse('missing', undefined), ...refuse('string_too_short', '')],
  },
  {
    field: 'n',
    accepts: [undefined, '1', '10'],
    rejects: [
      ...refuse('greater_than_equal', '0', '-1'),
      ...refuse('less_than_equal', '11'),
      ...refuse('int_type', '1.5', 'two', '', '1e0', ' 1'),
    ],
    default: 1,
  },
  {
    field: 'response_format',
    accepts: [undefined, 'url', 'b64_json'],
    rejects: noWord('URL', 'png', ''),
    default: 'url',
  },
  {
    field: 'size',
    accepts: [undefined, ...IMAGE_SIZES],
    rejects: noWord('256', '256X256', '1792x1024', ''),
    default: '1024x1024',
  },
  { field: 'user', accepts: [undefined, 'me', ''], rejects: [] },
]

/** One input more than a request may have; the interface sets no limit. */
const MANY = Array.from({ length: 2_049 }, () => 'a')
/** More tokens than the model takes. */
const LONG = 'a '.repeat(9_000)

/** Interface, 2.6. */
export const EMBEDDING_ROWS: readonly FieldRow[] = [
  {
    field: 'input',
    accepts: ['a whale', ['a', 'b'], [1, 2, 3], [[1, 2], [3]], 'a '.repeat(8_000), MANY.slice(1)],
    rejects: [
      ...refuse('missing', undefined),
      ...refuse('value_error', null, 5, {}, true, [null], [{}]),
      ...refuse('string_too_short', ''),
      ...refuse('too_short', []),
      ...refuse('too_long', MANY),
      ...refuseAt([1], 'string_too_short', ['a', '']),
      ...refuseAt([1], 'string_type', ['a', 1]),
      ...refuseAt([1], 'int_type', [1, 'a']),
      ...refuseAt([0], 'int_from_float', [1.5]),
      ...refuseAt([0], 'greater_than_equal', [-1]),
      ...refuseAt([0], 'too_short', [[]]),
      ...refuseAt([1], 'too_short', [[1], []]),
      ...refuseAt([1], 'list_type', [[1], 'a']),
      ...refuseAt([0, 1], 'int_type', [[1, 'a']]),
      ...beyondSchema([...refuse('too_long', LONG), ...refuseAt([1], 'too_long', ['a', LONG])]),
    ],
  },
  requiredTextRow('model', 'demo/embedding'),
  wordRow('encoding_format', ['float', 'base64']),
  textRow('user'),
]

/** Facts of the interface: a search. */
export const SEARCH_ROWS: readonly FieldRow[] = [
  {
    field: 'query',
    accepts: ['whales', 'x'.repeat(2_000)],
    rejects: [
      ...refuse('missing', undefined),
      ...refuse('string_type', null),
      ...refuse('string_too_short', ''),
      ...refuse('string_too_long', 'x'.repeat(2_001)),
      ...beyondSchema(refuse('string_pattern_mismatch', ' ', 'a\u0000b')),
      ...NO_TEXT,
    ],
  },
  { ...integerRow('max_results', { min: 1, max: 10 }), default: 5 },
]
