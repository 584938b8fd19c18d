# talon_proto(NAME FILE): static library talon_NAME of a .proto file's messages and services. Its
# headers are included as <serve/grpc/FILE.pb.h>, from the build folder.
function(talon_proto name file)
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  string(REGEX REPLACE "\\.proto$" "" stem ${path})
  set(out ${PROJECT_BINARY_DIR}/proto)
  set(made ${out}/${stem}.pb.cc ${out}/${stem}.grpc.pb.cc)
  add_custom_command(
    OUTPUT ${made} ${out}/${stem}.pb.h ${out}/${stem}.grpc.pb.h
    COMMAND ${CMAKE_COMMAND} -E make_directory ${out}
    COMMAND ${TALON_PROTOC} -I ${PROJECT_SOURCE_DIR}/src --cpp_out=${out} --grpc_out=${out}
            --plugin=protoc-gen-grpc=${TALON_GRPC_PLUGIN} ${PROJECT_SOURCE_DIR}/src/${path}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  add_library(talon_${name} STATIC ${made})
  target_include_directories(talon_${name} SYSTEM PUBLIC ${out})
  target_link_libraries(talon_${name} PUBLIC PkgConfig::grpc PkgConfig::protobuf)
endfunction()
