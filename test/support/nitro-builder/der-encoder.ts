export {
  bitString,
  derBoolean as boolean,
  derInteger as integer,
  encodeDer,
  encodeLength,
  objectIdentifier,
  octetString,
  printableString,
  sequence,
  set,
  time,
  utf8String,
} from '#src/local/x509/der-encoder.ts'
