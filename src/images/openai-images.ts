/**
 * OpenAI's image models since gpt-image-1 always answer in base64, and refuse a request with
 * `response_format`. The model's id may have any prefix and any case.
 */
const HAS_FIXED_FORMAT = /(^|[^a-z0-9])(chat)?gpt-image-/i

/** Returns the members of a request with which an API of OpenAI's form answers in base64. */
export function base64Format(model: string): Readonly<Record<string, string>> {
  return HAS_FIXED_FORMAT.test(model) ? {} : { response_format: 'b64_json' }
}

/** Some services write an image as a data URL, or break the base64 into lines (RFC 2045). */
export function plainBase64(text: string): string {
  return text.replace(/^data:image\/[^,]{1,64};base64,/i, '').replaceAll(/[\r\n]+/g, '')
}
