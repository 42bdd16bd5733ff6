"""Generated protobuf and gRPC stubs of `protos/dcfpca/v1`; made by `make protos`."""
